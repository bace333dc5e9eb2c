package opencode

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"intermission/restart"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Key is the message id under which d is delivered: the same for every attempt
// at one suspension, so that the server executes at most one. It has the form of
// the server's own ids, which v1 sorts messages by: 12 hexadecimal digits of
// (milliseconds*4096+n) mod 2^48, then 14 of base 62 (seen in 1.18 and 2.0, 2026).
func Key(d restart.Delivery) string { return "msg_" + identifier("message", d) }

// PartKey is the id of the one part of that message (v1).
func PartKey(d restart.Delivery) string { return "prt_" + identifier("part", d) }

// isKey tells whether message is one that we delivered to the session, whatever
// suspension it was for: the key holds its time, but for the highest bits.
func isKey(session, message string) bool {
	head, ok := strings.CutPrefix(message, "msg_")
	if !ok || len(head) < 12 {
		return false
	}
	n, err := strconv.ParseUint(head[:12], 16, 64)
	if err != nil || n%4096 != 4095 {
		return false
	}
	for high := int64(0); high < 1<<6; high++ { // to the year 2109
		if Key(restart.Delivery{Session: session, Suspended: high<<36 | int64(n>>12)}) == message {
			return true
		}
	}
	return false
}

func identifier(kind string, d restart.Delivery) string {
	// The last n of that millisecond, so that it sorts after the messages of the turn that was suspended.
	head := (uint64(d.Suspended)*4096 + 4095) & (1<<48 - 1)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", kind, d.Session, d.Suspended))
	tail := make([]byte, 14)
	for i := range tail {
		tail[i] = base62[int(sum[i])%len(base62)]
	}
	return fmt.Sprintf("%012x%s", head, tail)
}
