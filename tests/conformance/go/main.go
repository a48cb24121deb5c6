// Command sandboxchecks runs the official Go SDK of Service Bus against a sandbox.
//
// It reads SANDBOX_CONNECTION_STRING, SANDBOX_NAMESPACE, SANDBOX_CA and SANDBOX_CONTROL, and prints one line of JSON for
// each check: {"check", "passed", "error"}. Arguments choose checks by a part of their names.
//
// SANDBOX_SENDERS and SANDBOX_CLIENTS are connection strings of a
// gateway, if given, for senders and for all other clients.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

type check struct {
	name string
	run  func(*bench)
}

// One line for each check; the runner reads the names from here.
var checks = []check{
	{"a message is sent, received and completed", completeMessage},
	{"a message without an id is sent, received and completed", completeMessageWithoutID},
	{"messages arrive in the order they were sent", keepOrder},
	{"a batch arrives whole", sendBatch},
	{"a full batch refuses a message, and is sent", fillBatch},
	{"a message above the size limit is refused, and the sender lives", refuseLargeMessage},
	{"a message of several frames arrives whole", sendManyFrames},
	{"receive and delete leaves nothing", receiveAndDelete},
	{"a closed receive-and-delete receiver returns its cached messages", receiveCachedMessages},
	{"system properties come back as sent", keepSystemProperties},
	{"application properties keep their types", keepPropertyTypes},
	{"an annotated message keeps a value body", keepValueBody},
	{"an annotated message keeps a sequence body", keepSequenceBody},
	{"an annotated message keeps several data sections", keepDataSections},
	{"an annotated message keeps header, annotations and footer", keepAnnotatedSections},
	{"a message expires after its time to live", expireMessage},
	{"an expired message is dead-lettered with its reason", deadLetterExpired},
	{"duplicates are discarded", discardDuplicates},
	{"a receiver waits until its deadline", waitForDeadline},

	{"an abandoned message returns with a higher delivery count", abandonMessage},
	{"a message abandoned too often is dead-lettered", exceedDeliveryCount},
	{"a deferred message is received by its number", deferMessage},
	{"an unknown number of a deferred message is not found", receiveUnknownDeferred},
	{"a dead-lettered message has its reason", deadLetterMessage},
	{"peeks lock nothing and continue", peekMessages},
	{"a lock is renewed", renewLock},
	{"an expired lock is reported as lost", loseLock},
	{"a lock token alone settles a message", settleByToken},
	{"a message is completed after its receiver has gone", settleOverManagement},
	{"released messages are delivered again", releaseMessages},
	{"a scheduled message waits for its time", scheduleMessage},
	{"a scheduled message is cancelled", cancelScheduled},
	{"an annotated message is scheduled", scheduleAnnotated},

	{"a named session is accepted and read in order", acceptNamedSession},
	{"the next session is accepted", acceptNextSession},
	{"no session until the deadline is a time-out", acceptNoSession},
	{"a locked session is refused", refuseLockedSession},
	{"session state is set, read and cleared", keepSessionState},
	{"a session lock is renewed", renewSessionLock},
	{"a receiver without a session is refused", refuseReceiverWithoutSession},
	{"messages of a session are deferred, dead-lettered and peeked", deferInSession},
	{"sessions are listed", listSessions},

	{"a queue is created, read, updated, listed and deleted", manageQueue},
	{"runtime properties count messages", countMessages},
	{"a topic delivers to each subscription", deliverToSubscriptions},
	{"rules are created, read, updated, listed and deleted", manageRules},
	{"a rule filters and its action changes the message", applyRules},
	{"a queue forwards to another", forwardMessages},
	{"a missing entity is not found", refuseMissingEntity},
	{"a wrong key is unauthorized", refuseWrongKey},
	{"the namespace describes itself", describeNamespace},

	{"AMQP over TLS serves the namespace's Azure name", connectOverTLS},
	{"AMQP over a web socket is served", connectOverWebSocket},
	{"go-amqp by user and password sends and receives", connectByPassword},
	{"go-amqp by a wrong password is refused", refuseWrongPassword},
	{"a certificate that is not trusted ends the connection", refuseUntrusted},

	{"fault refused: a send outlasts it", outlastRefused},
	{"fault reset: a send outlasts it", outlastReset},
	{"fault reset: a receiver outlasts it", receiveAfterReset},
	{"fault black-holed: a send meets its deadline, the next succeeds", outlastBlackHole},
	{"fault half-open: a new client is served", replaceHalfOpenClient},
	{"fault unanswered: the message arrives, the send does not know", sendUnanswered},
	{"fault acknowledgement-lost: duplicate detection keeps one message", loseAcknowledgement},
	{"fault busy: a send retries", outlastBusy},
	{"fault busy: a management request retries", scheduleWhileBusy},
	{"fault late: a message becomes visible later", receiveLate},
	{"fault latency: a send takes longer", sendSlowly},
	{"fault detached: a sender and a receiver attach again", outlastDetach},
	{"fault detached: a locked message is completed", completeAfterDetach},
	{"fault disconnected: a sender and a receiver connect again", outlastDisconnect},
	{"fault disconnected: a session is accepted again", acceptSessionAfterDisconnect},
	{"fault disabled: the entity refuses, then serves", outlastDisabled},
	{"fault not-found: the entity is missing, then serves", outlastNotFound},
	{"fault unauthorized: the send is refused, then served", outlastUnauthorized},
	{"fault full: the quota is reported, then there is space", outlastFull},
	{"fault node-restart: a send outlasts it", outlastNodeRestart},
}

func main() {
	output := json.NewEncoder(os.Stdout)
	for _, each := range checks {
		if !chosen(each.name, os.Args[1:]) {
			continue
		}
		verdict := struct {
			Check  string  `json:"check"`
			Passed bool    `json:"passed"`
			Error  *string `json:"error"`
		}{Check: each.name}
		if failure := perform(each); failure == "" {
			verdict.Passed = true
		} else {
			verdict.Error = &failure
		}
		if err := output.Encode(verdict); err != nil {
			os.Exit(1)
		}
	}
}

func chosen(name string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(name, part) {
			return true
		}
	}
	return len(parts) == 0
}

// perform returns the failure of a check, or "". A check fails by a panic.
func perform(each check) (failure string) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case expectation:
			failure = string(reason)
		default:
			failure = fmt.Sprintf("%v\n%s", reason, debug.Stack())
		}
	}()
	b := newBench(each.name)
	defer b.close()
	each.run(b)
	return ""
}
