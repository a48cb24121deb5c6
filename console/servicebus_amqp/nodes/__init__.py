"""The nodes of a namespace as any server has them: refusals, requests and replies, `$cbs`. Not here: entities."""
