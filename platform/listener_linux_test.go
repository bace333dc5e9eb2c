package platform

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func init() { roles["listen"] = roleListen }

// roleListen listens, says where, and does so until its input ends.
func roleListen([]string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, l.Close())
}

func TestCheckListener(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"127.0.0.1:0", "[::1]:0", ":0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", network)
		if err != nil && network == "[::1]:0" {
			continue // a system without IPv6
		}
		must(t, err)
		if err := CheckListener(l.Addr()); err != nil {
			t.Errorf("ours: %v", err)
		}
		if err := checkListenerIn(tcpTables, l.Addr(), stranger); !errors.Is(err, ErrForeignListener) {
			t.Errorf("of another: %v", err)
		}
		addr := l.Addr()
		if port := addr.(*net.TCPAddr).Port; network == ":0" || network == "0.0.0.0:0" { // as who connects sees it
			addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
			if err := CheckListener(addr); err != nil {
				t.Errorf("ours, at all addresses: %v", err)
			}
		}
		must(t, l.Close())
		if err := CheckListener(addr); !errors.Is(err, ErrForeignListener) {
			t.Errorf("nobody's: %v", err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, l.Close()) }()
	for _, tables := range [][]string{{"/absent"}, {t.TempDir()}} {
		if err := checkListenerIn(tables, l.Addr(), stranger); err != nil {
			t.Errorf("where nothing is told: %v", err)
		}
	}
	// Another's at another address of that port is nobody's business.
	table := filepath.Join(t.TempDir(), "tcp")
	line := "  0: %s:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 %5d 0 1\n"
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	for text, refused := range map[string]bool{
		fmt.Sprintf(line, words(net.IPv4(192, 0, 2, 1).To4()), stranger) + fmt.Sprintf(line, words(at.IP.To4()), 7): false,
		fmt.Sprintf(line, "00000000", stranger) + fmt.Sprintf(line, words(at.IP.To4()), 7):                          false,
		fmt.Sprintf(line, "00000000", 7) + fmt.Sprintf(line, words(at.IP.To4()), stranger):                          true,
		fmt.Sprintf(line, strings.Repeat("0", 32), 7):                                                               false,
		fmt.Sprintf(line, words(at.IP.To16()), stranger):                                                            true,
		"": true,
	} {
		must(t, os.WriteFile(table, []byte("  sl  local_address …\n"+text), 0o600))
		if err := checkListenerIn([]string{table}, at, 7); (err != nil) != refused {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := CheckListener(&net.UnixAddr{}); err != nil {
		t.Error(err)
	}
}

// TestCheckListenerOfAnotherUser has another user's process listen.
func TestCheckListenerOfAnotherUser(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := socketDir(t)
	must(t, os.Chmod(dir, 0o755))
	exe, err := os.ReadFile(os.Args[0])
	must(t, err)
	program := filepath.Join(dir, "exe")
	must(t, writeProgram(program, exe))
	must(t, os.Chmod(program, 0o755))
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = dir, []string{roleVariable + "=listen"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	_, said := spawnCommand(t, cmd)
	addr, err := net.ResolveTCPAddr("tcp", strings.TrimSpace(said))
	must(t, err)
	if err := CheckListener(addr); !errors.Is(err, ErrForeignListener) || !strings.Contains(err.Error(), "uid") {
		t.Errorf("got %v", err)
	}
}
