"""Conformance: Microsoft's own tests of azure-servicebus, run unchanged against a fresh sandbox.

`python -m tests.conformance` fetches the source archive of the installed version, runs the tests that need an endpoint
and compares what comes out with `expected.toml`. Nothing of Microsoft's tests is kept in this project: what stands in
for their unpublished helpers was written here, in `standin`, and changes nothing but constructor arguments.
"""
