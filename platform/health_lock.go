package platform

// LockLook is what a lock was at the moment when it was looked at.
type LockLook struct {
	Held bool
	PID  int    // of the holder; 0 when it can't be told
	Name string // of the holder's program; "" when it can't be told
}

// LookAtLock tells whether somebody holds the lock of a file (TryLock), and who.
// Where the system lists its locks none is taken; elsewhere it is taken and let go
// in the same moment. A file that isn't there is not made: nobody holds its lock.
func LookAtLock(path string) (LockLook, error) { return lookAtLock(path) }

// LookAtServerLock is LookAtLock for the managed server's own lock (TryServerLock).
func LookAtServerLock(path string) (LockLook, error) { return lookAtServerLock(path) }
