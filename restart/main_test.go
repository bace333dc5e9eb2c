package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain starts this binary again as one of the racing consumers, or on a small disk.
func TestMain(m *testing.M) {
	if path := os.Getenv("RESTART_TEST_CONSUME"); path != "" {
		os.Exit(consumer(path))
	}
	if dir := os.Getenv(onSmallDisk); dir != "" {
		os.Exit(smallDisk(dir))
	}
	goleak.VerifyTestMain(m)
}

// consumer opens the ledger, says so, waits for its standard input to end, and tries to consume ses_1.
func consumer(path string) int {
	l, err := Open(path, time.Now)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer l.Close()
	at, err := strconv.ParseInt(os.Getenv("RESTART_TEST_AT"), 10, 64)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // the parent closes it: the start signal
	switch _, err := l.Consume(context.Background(), "ses_1", at); {
	case err == nil:
		fmt.Println("won")
	case errors.Is(err, ErrNotPending):
		fmt.Println("lost")
	default:
		fmt.Println("error", err)
	}
	return 0
}
