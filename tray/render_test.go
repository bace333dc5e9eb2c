package tray

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"intermission/assets"
	"intermission/restart"
	"intermission/supervisor/control"
)

// paper is a surface that remembers what stands on it, and counts what is done to it.
type paper struct {
	icon           assets.Icon
	title, tooltip string
	calls          int
	ids            int
	items          []*mark
}

// mark is an element on paper.
type mark struct {
	paper  *paper
	parent *mark
	id     int
	item   Item // as it looks
	items  []*mark
	gone   bool
}

func (p *paper) begin()                {}
func (p *paper) end()                  {}
func (p *paper) setIcon(i assets.Icon) { p.calls++; p.icon = i }
func (p *paper) setTitle(s string)     { p.calls++; p.title = s }
func (p *paper) setTooltip(s string)   { p.calls++; p.tooltip = s }

func (p *paper) add(parent element, i Item) element {
	p.calls++
	p.ids++
	i.Items = nil
	m := &mark{paper: p, id: p.ids, item: i}
	if above, ok := parent.(*mark); ok {
		if above.gone || above.item.Hidden {
			panic("an item is added to one that isn't there")
		}
		m.parent = above
		above.items = append(above.items, m)
	} else {
		p.items = append(p.items, m)
	}
	return m
}

func (m *mark) touch() {
	m.paper.calls++
	if m.gone {
		panic("a removed item is touched")
	}
}

// A hidden item is shown by any change of it, as on Windows.
func (m *mark) setTitle(s string)  { m.touch(); m.item.Title, m.item.Hidden = s, false }
func (m *mark) setDisabled(v bool) { m.touch(); m.item.Disabled, m.item.Hidden = v, false }
func (m *mark) setChecked(v bool)  { m.touch(); m.item.Checked, m.item.Hidden = v, false }
func (m *mark) setHidden(v bool)   { m.touch(); m.item.Hidden = v }

func (m *mark) remove() {
	m.touch()
	if len(m.items) > 0 {
		panic("an item is removed before what it holds")
	}
	if m.parent == nil {
		panic("an item of the menu itself is removed")
	}
	m.gone = true
	m.parent.items = slices.DeleteFunc(m.parent.items, func(o *mark) bool { return o == m })
}

// read gives what stands on paper as a menu.
func (p *paper) read() Menu {
	return Menu{Icon: p.icon, Title: p.title, Tooltip: p.tooltip, Items: readMarks(p.items)}
}

func readMarks(marks []*mark) []Item {
	var items []Item
	for _, m := range marks {
		i := m.item
		i.Items = readMarks(m.items)
		items = append(items, i)
	}
	return items
}

func withoutHidden(items []Item) []Item {
	var out []Item
	for _, i := range items {
		if !i.Hidden {
			i.Items = withoutHidden(i.Items)
			out = append(out, i)
		}
	}
	return out
}

// shown gives what a click on each clickable element would mean.
func (p *paper) shown() map[int]Action {
	all := map[int]Action{}
	var walk func([]*mark)
	walk = func(marks []*mark) {
		for _, m := range marks {
			if m.item.Action != (Action{}) {
				all[m.id] = m.item.Action
			}
			walk(m.items)
		}
	}
	walk(p.items)
	return all
}

func TestNothingChangedIsNoCall(t *testing.T) {
	t.Parallel()
	p := &paper{}
	r := renderer{surface: p}
	s := linked(working(with(running(), many(60)...), control.Working{ID: "ses_w", StartedAt: ago(0), ProgressAt: ago(0)}))
	m, next := Model(s)
	r.draw(m)
	calls := p.calls
	s.Now = next.Add(-1)
	same, _ := Model(s)
	r.draw(same)
	if p.calls != calls {
		t.Errorf("%d calls for the same menu", p.calls-calls)
	}
}

// TestFewCalls holds how little is touched for the changes that happen most.
func TestFewCalls(t *testing.T) {
	t.Parallel()
	list := many(8)
	busy := control.Working{ID: "ses_w", Title: "w", StartedAt: ago(time.Hour), ProgressAt: ago(0)}
	for name, tt := range map[string]struct {
		from, to State
		most     int
	}{
		"an act under way": {linked(with(running(), list...)), func() State {
			s := linked(with(running(), list...))
			s.Under = map[Action]bool{{Verb: Resume, Session: list[7].ID, At: list[7].SuspendedAt}: true}
			return s
		}(), 9}, // the four acts of one session, made anew
		"a message": {linked(running()), func() State { s := linked(running()); s.Message = "x"; return s }(), 2},
		"no progress": {linked(working(running(), busy)), func() State {
			w := busy
			w.ProgressAt, w.Quiet = ago(5*time.Minute), true
			return linked(working(running(), w))
		}(), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &paper{}
			r := renderer{surface: p}
			from, _ := Model(tt.from)
			to, _ := Model(tt.to)
			r.draw(from)
			before := p.calls
			r.draw(to)
			if n := p.calls - before; n == 0 || n > tt.most {
				t.Errorf("%d calls, want 1 to %d", n, tt.most)
			}
		})
	}
}

// anyState draws states as supervisors tell them, in any order.
func anyState(t *rapid.T) State {
	snap := running()
	snap.Status.Server.State = rapid.SampledFrom([]string{"running", "running", "running", "stopped", "failed", "starting", "what"}).Draw(t, "server")
	var list []control.Suspension
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 70), 0, 60, rapid.ID[int]).Draw(t, "pending") {
		p := many(71)[i]
		p.State = rapid.SampledFrom([]restart.State{restart.StatePending, restart.StateQueued, restart.StateResuming, restart.StateUnknown, restart.StateBlocked}).Draw(t, "state")
		p.SuspendedAt -= rapid.Int64Range(0, 2).Draw(t, "earlier")
		p.Resumes = rapid.IntRange(0, 1).Draw(t, "resumes")
		list = append(list, p)
	}
	var busy []control.Working
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 0, 15, rapid.ID[int]).Draw(t, "working") {
		busy = append(busy, control.Working{ID: fmt.Sprint("ses_w", i), StartedAt: rapid.Int64Range(1, 3).Draw(t, "start"), ProgressAt: ago(time.Duration(i) * time.Minute), Quiet: i%2 == 0})
	}
	s := linked(working(with(snap, list...), busy...))
	s.Link = rapid.SampledFrom([]Link{Linked, Linked, Linked, Absent, Broken, Connecting}).Draw(t, "link")
	s.Login = rapid.Bool().Draw(t, "login")
	s.LoginSeen = rapid.Bool().Draw(t, "seen")
	s.Message = rapid.SampledFrom([]string{"", "something"}).Draw(t, "message")
	return s
}

// TestDrawShowsTheMenu: after any menus in any order, the surface shows the last
// one, and no element that lives on means anything else than it did before.
func TestDrawShowsTheMenu(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &paper{}
		r := renderer{surface: p}
		meant := map[int]Action{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			m, _ := Model(anyState(t))
			r.draw(m)
			if diff := cmp.Diff(withoutHidden(m.Items), withoutHidden(p.read().Items)); diff != "" {
				t.Fatal(diff)
			}
			if got := p.read(); got.Icon != m.Icon || got.Title != m.Title || got.Tooltip != m.Tooltip {
				t.Fatalf("the icon is %v", got)
			}
			for id, a := range p.shown() {
				if before, known := meant[id]; known && before != a {
					t.Fatalf("element %d meant %+v, and means %+v", id, before, a)
				}
				meant[id] = a
			}
		}
	})
}

func BenchmarkDraw(b *testing.B) {
	a, _ := Model(linked(with(running(), many(60)...)))
	c, _ := Model(linked(with(running(), many(59)...)))
	p := &paper{}
	r := renderer{surface: p}
	for b.Loop() {
		r.draw(a)
		r.draw(c)
	}
	b.ReportMetric(float64(p.calls)/float64(b.N)/2, "calls/draw")
}
