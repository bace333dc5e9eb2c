// Package lab holds the tests of the installed service, and nothing else: it has
// no code of its own, only tests. They boot a machine with a real systemd, install
// the package on it as an administrator would, and look at what an ordinary user
// then has: over logins, logouts, reboots, upgrades and deaths, and above all by
// the requests that reach the model, which are the truth about consent.
//
// A machine is a systemd-nspawn container on an overlay of the root of whoever runs
// the tests: it boots in a second, downloads nothing and writes nothing to the
// disk below. It is held by a keeper, this test binary started again as the first
// process of a PID namespace (keeper_test.go): when the test ends, in whatever way,
// the keeper ends, and the kernel ends everything else with it.
//
// It needs root, systemd-nspawn, a system bus, PAM's systemd module, polkit (which
// lets an ordinary user delay a shutdown) and cgroups of version 2. Where one is
// missing the tests are skipped with the reason; with the variable CI set they fail.
//
// OpenCode is the embedded dev server, behind a script on the PATH of the login
// shell only, as the installations of node version managers are.
package lab
