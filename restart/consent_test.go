package restart

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

func TestASuspensionIsConsumedOnceByTwentyProcesses(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	var starts []func()
	var outputs [20]*bufio.Scanner
	for i := range outputs {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "RESTART_TEST_CONSUME="+b.path, "RESTART_TEST_AT=5000")
		in, err := cmd.StdinPipe()
		b.must(err)
		out, err := cmd.StdoutPipe()
		b.must(err)
		b.must(cmd.Start())
		t.Cleanup(func() { _ = cmd.Wait() })
		outputs[i] = bufio.NewScanner(out)
		if !outputs[i].Scan() || outputs[i].Text() != "ready" {
			t.Fatalf("consumer %d: %q", i, outputs[i].Text())
		}
		starts = append(starts, func() { _ = in.Close() })
	}
	for _, start := range starts {
		start()
	}
	count := map[string]int{}
	for _, out := range outputs {
		out.Scan()
		count[out.Text()]++
	}
	if count["won"] != 1 || count["lost"] != 19 {
		t.Errorf("%v", count)
	}
	b.wants("ses_1 queued")
	b.journaled("ses_1", whatSuspended, whatConsented)
}

func TestASuspensionIsConsumedOnceByTwentyGoroutines(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	var wg sync.WaitGroup
	won := make(chan Ticket, 20)
	for range 20 {
		wg.Go(func() {
			ticket, err := b.Consume(t.Context(), "ses_1", 5000)
			var taken *TakenError
			if err == nil {
				won <- ticket
			} else if !errors.As(err, &taken) || taken.State != StateQueued {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d won", len(won))
	}
}

func TestStaleConsentMeansNothing(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	for _, at := range []int64{0, 4999, 5001} {
		if _, err := b.Consume(t.Context(), "ses_1", at); !errors.Is(err, ErrNotPending) {
			t.Errorf("at %d: %v", at, err)
		}
		if at == 0 {
			continue
		}
		if _, err := b.Dismiss(t.Context(), "ses_1", at); !errors.Is(err, ErrNotPending) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	b.wants("ses_1 pending")
	b.journaled("ses_1", whatSuspended)
}

func TestPutBackIsTheVerySameSuspension(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	var old Ticket
	for i := range 2 {
		ticket, err := b.Consume(t.Context(), "ses_1", 5000)
		b.must(err)
		if i == 1 {
			if err := b.Delivering(t.Context(), old); !errors.Is(err, ErrNotPending) {
				t.Errorf("a ticket that was put back delivers by a later consent: %v", err)
			}
		}
		b.must(b.Delivering(t.Context(), ticket))
		b.wants("ses_1 resuming")
		b.must(b.PutBack(t.Context(), ticket, "the model\nis on strike", "m2"))
		if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 5000 || s.Reason != "the model is on strike" {
			t.Errorf("%+v", s)
		}
		old = ticket
	}
	b.db.fate("ses_1", OutcomeSuspended, "m2") // the trace of the attempt
	b.must(b.Reconcile(t.Context(), b.db))
	b.wants("ses_1 pending")
	b.journaled("ses_1", whatSuspended, whatConsented, whatRefused, whatConsented, whatRefused)
}

func TestUnknownNeedsANewConsent(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	b.must(b.Delivering(t.Context(), ticket))
	b.must(b.Unknown(t.Context(), ticket, "the connection broke", ""))
	s := b.wants("ses_1 unknown")[0]
	if s.SuspendedAt != b.clock || s.Reason != "the connection broke" {
		t.Errorf("%+v", s)
	}
	if _, err := b.Consume(t.Context(), "ses_1", 5000); !errors.Is(err, ErrNotPending) {
		t.Errorf("the old click: %v", err)
	}
	if err := b.Delivered(t.Context(), ticket, ""); !errors.Is(err, ErrNotPending) {
		t.Errorf("the old ticket: %v", err)
	}
	next, err := b.Consume(t.Context(), "ses_1", s.SuspendedAt)
	b.must(err)
	if next.Suspended == ticket.Suspended {
		t.Error("the same idempotency key again")
	}
	b.must(b.Delivering(t.Context(), next))
	b.must(b.Unknown(t.Context(), next, "again", ""))
	n, err := b.Dismiss(t.Context(), "ses_1", 0)
	if err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	b.journaled("ses_1", whatSuspended, whatConsented, whatUnknown, whatConsented, whatUnknown, whatDismissed)
}

func TestDismiss(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	b.must(b.Delivering(t.Context(), ticket))
	var refused *RefusedError
	if _, err := b.Dismiss(t.Context(), "ses_1", 5000); !errors.As(err, &refused) {
		t.Errorf("while it is resumed: %v", err)
	}
	b.must(b.PutBack(t.Context(), ticket, "", ""))
	ticket, err = b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	n, err := b.Dismiss(t.Context(), "ses_1", 5000)
	if err != nil || n != 1 {
		t.Errorf("while it is queued: %d, %v", n, err)
	}
	if err := b.Delivering(t.Context(), ticket); !errors.Is(err, ErrNotPending) {
		t.Errorf("delivers after it was dismissed: %v", err)
	}
	if _, err := b.Dismiss(t.Context(), "ses_1", 5000); !errors.Is(err, ErrNotPending) {
		t.Errorf("twice: %v", err)
	}
	b.apply(EventShutdown, "ses_1", 3000) // an old event again
	b.park()
	b.wants()
}

func TestDismissingAParentDismissesItsSubagents(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_root", 10), claim("ses_a", 20), claim("ses_b", 30))
	b.db.about["ses_a"] = Description{Parent: "ses_root"}
	b.db.about["ses_b"] = Description{Parent: "ses_a"}
	b.park()
	n, err := b.Dismiss(t.Context(), "ses_root", 0)
	if err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	b.park()
	b.wants()
	for _, id := range []string{"ses_root", "ses_a", "ses_b"} {
		b.journaled(id, whatSuspended, whatDismissed)
	}
}

func TestTextOfASessionIsPlain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, 3000))
	b.db.about["ses_1"] = Description{Title: "rm_x && <b>y</b>\n\u202e😀", Directory: "/a\tb", LastPrompt: &Prompt{Text: "go\x1b]0;x\aon"},
		LastTool: &Tool{Name: "write\x00", Input: strings.Repeat("x", 1000), Status: "running"}}
	b.park()
	s := b.wants("ses_1 pending")[0]
	if s.Title != "rm_x && <b>y</b> 😀" || s.Directory != "/a\tb" || s.LastPrompt.Text != "goon" || s.LastTool.Name != "write" || len(s.LastTool.Input) > 310 {
		t.Errorf("%s", fmt.Sprintf("%+v %+v %+v", s, s.LastPrompt, s.LastTool))
	}
}
