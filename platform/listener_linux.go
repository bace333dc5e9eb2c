package platform

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
)

// tcpTables are the system's TCP sockets, with their owners (proc_net_tcp in the
// kernel's documentation).
var tcpTables = []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}

func checkListener(addr net.Addr) error { return checkListenerIn(tcpTables, addr, os.Geteuid()) }

func checkListenerIn(tables []string, addr net.Addr, uid int) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	var exact, every []int
	for _, path := range tables {
		more, all, err := listeners(path, tcp)
		if errors.Is(err, fs.ErrNotExist) && path != tables[0] {
			continue // a system without IPv6
		}
		if err != nil {
			return nil //nolint:nilerr // where the system doesn't say, nobody can be told apart
		}
		exact, every = append(exact, more...), append(every, all...)
	}
	owners := exact
	if len(owners) == 0 { // else connections go there
		owners = every
	}
	for _, owner := range owners {
		if owner != uid {
			return fmt.Errorf("%w: uid %d listens at %s", ErrForeignListener, owner, addr)
		}
	}
	if len(owners) == 0 { // who has accepted the connection has gone, and may have been anybody
		return fmt.Errorf("%w, or did: nobody listens at %s any more", ErrForeignListener, addr)
	}
	return nil
}

// listeners gives the owners of the sockets that listen at that very address, and of
// those that listen at all addresses, on its port.
func listeners(path string, at *net.TCPAddr) (exact, every []int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	const listening = "0A"
	in := bufio.NewScanner(f)
	for in.Scan() {
		// sl, local address, remote address, state, queues, timer, retransmissions, uid
		fields := strings.Fields(in.Text())
		if len(fields) < 8 || fields[3] != listening {
			continue
		}
		address, port, _ := strings.Cut(fields[1], ":")
		if port != fmt.Sprintf("%04X", at.Port) {
			continue
		}
		owner, err := strconv.Atoi(fields[7])
		if err != nil {
			return nil, nil, err
		}
		switch {
		case address == words(at.IP.To4()), address == words(at.IP.To16()):
			exact = append(exact, owner)
		case strings.Trim(address, "0") == "":
			every = append(every, owner)
		}
	}
	return exact, every, in.Err()
}

// words is an address as the table has it: words of four bytes, each as a number of this machine.
func words(ip net.IP) string {
	var b strings.Builder
	for ; len(ip) >= 4; ip = ip[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(ip))
	}
	return b.String()
}
