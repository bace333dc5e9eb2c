// Package conformance holds the end-to-end suite, and nothing else: it has no
// code of its own, only tests. They build the real program, run it as a user
// would, in a fresh home with its own directories, and look at it from outside:
// by its commands, by the server's HTTP API and database, by the processes that
// are alive, and above all by the requests that reach the model provider, which
// are the truth about consent.
//
// One set of flows runs against three beds: the real OpenCode 1.18 with a stub
// provider (v1), and the dev server in both its kinds (v2-early, v2-claims).
// TestAlone is the control: the same servers without intermission, where the
// fault that the flows guard against must show.
//
// The kill matrix (matrix_test.go) has a program of its own, built with the fault points
// of restart/faultpoint, and kills the supervisor, the dev server, or both, or starts a
// foreign service, at each of them, and in random stories from a seed that is printed.
//
// The real OpenCode comes from .cache/opencode, where `make test` puts it, or is
// named by OPENCODE_BIN. INTERMISSION_BIN names a program to test instead of
// building one. Both must exist: nothing is skipped.
package conformance
