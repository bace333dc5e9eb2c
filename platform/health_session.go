package platform

// ProcessEnvironment gives the environment with which a process of this user was
// started. An error where the system doesn't tell.
func ProcessEnvironment(pid int) ([]string, error) { return processEnvironment(pid) }

// ForeignRuntimeDir gives XDG_RUNTIME_DIR where that is another user's directory, as
// after su from root; "" otherwise.
func ForeignRuntimeDir(getenv func(string) string) string { return foreignRuntimeDir(getenv) }

// NoUserManager tells whether systemd runs here, but no manager of this user: su and
// sudo start none.
func NoUserManager() bool { return noUserManager() }

// TimeServiceAct is how the clock is made to follow a time server here.
func TimeServiceAct() string { return timeServiceAct() }
