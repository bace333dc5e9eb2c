package devserver

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// identifiers makes ids in the real server's form: a prefix, 12 hexadecimal digits
// of milliseconds*4096+counter modulo 2^48, and 14 random characters of base 62.
type identifiers struct {
	mu   sync.Mutex
	last uint64
}

// next gives ids that sort by creation.
func (i *identifiers) next(prefix string) string { return i.make(prefix, false) }

// session gives a session's id: those sort newest first.
func (i *identifiers) session() string { return i.make("ses", true) }

func (i *identifiers) make(prefix string, descending bool) string {
	i.mu.Lock()
	i.last = max(i.last+1, uint64(time.Now().UnixMilli())*4096+1)
	n := i.last
	i.mu.Unlock()
	if descending {
		n = ^n
	}
	tail := make([]byte, 14)
	_, _ = rand.Read(tail) // never fails: crypto/rand ends the process instead
	for k := range tail {
		tail[k] = base62[int(tail[k])%len(base62)]
	}
	return fmt.Sprintf("%s_%012x%s", prefix, n&(1<<48-1), tail)
}
