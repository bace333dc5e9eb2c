package platform

func lookAtLock(path string) (LockLook, error) { return tryShared(path) }

func lookAtServerLock(path string) (LockLook, error) { return tryShared(path) }
