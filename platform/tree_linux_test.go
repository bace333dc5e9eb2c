package platform

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// family is a root with a child that ignores TERM, and an orphan of it, in a
// session of its own, that ignores it too. All were started with the marker.
type family struct {
	marker              string
	process             *child
	root, child, orphan Identity
}

func newFamily(t *testing.T) family {
	t.Helper()
	f := family{marker: "INTERMISSION_TEST_FAMILY=" + t.Name()}
	cmd := roleCommand(exec.Command, "family")
	cmd.Env = append(cmd.Env, f.marker)
	var line string
	f.process, line = spawnCommand(t, cmd)
	var child, orphan int
	if _, err := fmt.Sscan(line, &child, &orphan); err != nil {
		t.Fatalf("the family said %q: %v", line, err)
	}
	f.root, f.child, f.orphan = f.process.identity(t), identityOfPID(t, child), identityOfPID(t, orphan)
	t.Cleanup(func() {
		_ = f.child.Signal(Kill)
		_ = f.orphan.Signal(Kill)
	})
	return f
}

func checkTree(t *testing.T, what string, root Identity, marker string, want ...Identity) {
	t.Helper()
	got, err := Tree(t.Context(), root, marker)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	checkTree(t, "descent", f.root, "", f.root, f.child)
	checkTree(t, "with orphans", f.root, f.marker, f.root, f.child, f.orphan)
	checkTree(t, "a marker that only begins the same", f.root, f.marker[:len(f.marker)-1], f.root, f.child)
	checkTree(t, "the pid is another's", Identity{PID: f.root.PID, Start: "1", Boot: f.root.Boot}, "")

	// The root has ended but isn't reaped; its child has no parent of the family any more.
	must(t, f.root.Signal(Kill))
	eventually(t, "the root ends", func() bool { return !f.root.Alive() })
	checkTree(t, "after the root's end", f.root, "")
	got, err := Tree(t.Context(), f.root, f.marker)
	must(t, err)
	if len(got) != 2 || !slices.Contains(got, f.child) || !slices.Contains(got, f.orphan) {
		t.Errorf("orphans after the root's end: %+v", got)
	}
}

func TestTreeLeavesTheCallerOut(t *testing.T) {
	t.Parallel()
	c, _ := spawn(t, "block")
	got, err := Tree(t.Context(), identityOfPID(t, os.Getpid()), "")
	must(t, err)
	if !slices.Contains(got, c.identity(t)) {
		t.Errorf("our child isn't in %+v", got)
	}
	if slices.ContainsFunc(got, func(i Identity) bool { return i.PID == os.Getpid() }) {
		t.Errorf("we are in %+v", got)
	}
}

func TestTreeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Tree(ctx, Identity{}, "A=b")
	checkError(t, err, context.Canceled.Error())
}

func TestKillTree(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	bystander, _ := spawn(t, "block")
	ids, err := Tree(t.Context(), f.root, f.marker)
	must(t, err)
	stale := bystander.identity(t)
	stale.Start = "1"
	if left := KillTree(t.Context(), append(ids, stale), 50*time.Millisecond); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if f.root.Alive() || f.child.Alive() || f.orphan.Alive() {
		t.Error("some of the family are alive")
	}
	if !bystander.identity(t).Alive() {
		t.Error("a process was ended by a stale identity")
	}
	_ = f.process.cmd.Wait()
	if s := endSignal(f.process.cmd.ProcessState); s != "SIGTERM" {
		t.Errorf("the root, which minds TERM, ended by %q", s)
	}
}

func TestKillTreeDoesNotWaitForTheWilling(t *testing.T) {
	t.Parallel()
	c, _ := spawn(t, "block")
	began := time.Now()
	if left := KillTree(t.Context(), []Identity{c.identity(t)}, time.Hour); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %v", took)
	}
}

func TestKillTreeEndsItsGraceWithTheContext(t *testing.T) {
	t.Parallel()
	c, _ := spawn(t, "ignoreterm")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if left := KillTree(ctx, []Identity{c.identity(t)}, time.Hour); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	_ = c.cmd.Wait()
	if s := endSignal(c.cmd.ProcessState); s != "SIGKILL" {
		t.Errorf("ended by %q", s)
	}
}

func BenchmarkTree(b *testing.B) {
	self, err := Identify(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Tree(b.Context(), self, "NO=SUCH MARKER"); err != nil {
			b.Fatal(err)
		}
	}
}
