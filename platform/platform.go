// Package platform holds what differs by operating system, behind names that
// are the same everywhere. It imports nothing of ours.
//
//	where things are      FindPaths, EnsurePrivateDir, WriteFileAtomic
//	who may go on         TryLock, TryLockDir, TryServerLock, WaitServerLock
//	which process it is   Identify, Identity.Alive, Identity.Signal, Watch
//	processes             Start, Tree, KillTree, RSS
//	talking               Listen, Dial
//	the user's shell      LoginEnvironment, LoginPath
//	the desktop           OpenDesktop, NewNotifier, OpenTerminal, OpenFile, CopyText
//	at login              Autostart
//	in the background     Service, SystemdUnit, UnderManager, StableProgram
//	the machine           WatchPower, HearPower
//
// Three rules hold in all of it. A process is an Identity (pid, start time,
// boot) and never a bare pid: nothing is signalled that doesn't prove its
// identity at that moment. Nothing waits by polling: locks, ends of processes
// and connections are waited for in the kernel; only states that a system tells
// nobody of are asked for (services', and macOS' sleep). Nothing of another user is
// trusted, root included, unless we are root.
//
// A file's suffix tells its system: _linux.go, _darwin.go, _windows.go, and
// _unix.go for what Linux and macOS share. Linux is tested with real processes.
// Windows follows its documented interfaces, and is tested under Wine as far as
// that goes; of macOS only what it shares and what is pure is tested.
package platform
