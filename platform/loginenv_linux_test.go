package platform

import "testing"

func TestPasswdShell(t *testing.T) {
	t.Parallel()
	const passwd = "root:x:0:0:root:/root:/bin/bash\n# comment\nbroken:x:7\nalice:x:1000:1000:Alice,,,:/home/alice:/usr/bin/fish\nbob:x:1001:1001::/home/bob:\n"
	for uid, want := range map[int]string{0: "/bin/bash", 1000: "/usr/bin/fish", 1001: "", 7: "", 100: ""} {
		if got := passwdShell(passwd, uid); got != want {
			t.Errorf("uid %d: %q, want %q", uid, got, want)
		}
	}
}
