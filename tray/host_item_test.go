//go:build linux

package tray

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	_ "image/png" // icons are PNG here
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	itemName = "org.kde.StatusNotifierItem"
	menuName = "com.canonical.dbusmenu"
)

// statusItem is a tray icon with its menu. It belongs to the bus, and so outlives a host.
type statusItem struct {
	sender     string // its process's unique name on the bus
	icon, tree dbus.BusObject
	news       news

	mu        sync.Mutex
	signals   int
	tips      int       // NewToolTip signals
	latest    time.Time // of the latest signal
	relaid    time.Time // of the latest LayoutUpdated
	firstRead time.Time
}

// item returns the item of a registration, the same one each time.
func (b *bus) item(t testing.TB, r registration) *statusItem {
	t.Helper()
	b.mu.Lock()
	it := b.items[r]
	b.mu.Unlock()
	if it != nil {
		return it
	}
	it = &statusItem{sender: r.sender}
	conn := b.Connect(t, dbus.WithSignalHandler(it))
	if err := conn.AddMatchSignal(dbus.WithMatchSender(r.sender)); err != nil {
		t.Fatal(err)
	}
	it.icon = conn.Object(r.sender, r.path)
	var menu dbus.Variant
	if err := call(t, it.icon, propsName+".Get", itemName, "Menu").Store(&menu); err != nil {
		t.Fatalf("the item has no menu: %v", err)
	}
	path, _ := menu.Value().(dbus.ObjectPath)
	it.tree = conn.Object(r.sender, path)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items[r] = it
	return it
}

// DeliverSignal notes a signal before any answer that comes after it: who has read a menu has its time, too.
func (it *statusItem) DeliverSignal(_, member string, s *dbus.Signal) {
	if s.Sender != it.sender {
		return
	}
	it.mu.Lock()
	it.signals++
	it.latest = time.Now()
	switch member {
	case "LayoutUpdated":
		it.relaid = it.latest
	case "NewToolTip":
		it.tips++
	}
	it.mu.Unlock()
	it.news.wake()
}

// changes counts the signals that the item has sent since it was first seen, and when the latest came.
func (it *statusItem) changes() (n int, latest time.Time) {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.signals, it.latest
}

// drawn counts the menus that were drawn with another tooltip, which comes last.
func (it *statusItem) drawn() int {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.tips
}

// look is an icon as it is shown.
type look struct {
	Title, ToolTip, Status string
	Icon                   picture
}

// picture tells icons apart.
type picture struct {
	Width, Height int
	Hash          string // of its pixels
}

// look reads the icon.
func (it *statusItem) look(t testing.TB) look {
	t.Helper()
	var props map[string]dbus.Variant
	if err := call(t, it.icon, propsName+".GetAll", itemName).Store(&props); err != nil {
		t.Fatalf("cannot read the item: %v", err)
	}
	type pixmap struct {
		Width, Height int32
		Pixels        []byte
	}
	var tip struct {
		Name               string
		Icons              []pixmap
		Title, Description string
	}
	var pixmaps []pixmap
	var l look
	for name, into := range map[string]any{"Title": &l.Title, "Status": &l.Status, "ToolTip": &tip, "IconPixmap": &pixmaps} {
		if err := dbus.Store([]any{props[name].Value()}, into); err != nil {
			t.Fatalf("property %s is %v: %v", name, props[name], err)
		}
	}
	l.ToolTip = tip.Title
	if len(pixmaps) > 0 {
		l.Icon = pictureOf(int(pixmaps[0].Width), int(pixmaps[0].Height), pixmaps[0].Pixels)
	}
	return l
}

// waitLook waits for the icon to look so.
func (it *statusItem) waitLook(t testing.TB, want func(look) bool) look {
	t.Helper()
	var last look
	if !it.news.await(func() bool { last = it.look(t); return want(last) }) {
		t.Fatalf("the item doesn't come to look as it should. It is: %+v", last)
	}
	return last
}

func pictureOf(width, height int, pixels []byte) picture {
	return picture{width, height, fmt.Sprintf("%x", sha256.Sum256(pixels))[:16]}
}

// iconOf returns how the bytes of a PNG come to a host.
func iconOf(t testing.TB, png []byte) picture {
	t.Helper()
	img, _, err := image.Decode(bytes.NewReader(png))
	if err != nil {
		t.Fatalf("not an icon: %v", err)
	}
	var pixels []byte
	bounds := img.Bounds()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			// systray takes the low bytes of the 16-bit channels, where the high ones would be right.
			r, g, b, a := img.At(x, y).RGBA()
			pixels = append(pixels, byte(a), byte(r), byte(g), byte(b))
		}
	}
	return pictureOf(bounds.Dx(), bounds.Dy(), pixels)
}

// click sends a click, whether or not the menu has such an entry.
func (it *statusItem) click(t testing.TB, id int32) {
	t.Helper()
	err := call(t, it.tree, menuName+".Event", id, "clicked", dbus.MakeVariant(int32(0)), uint32(0)).Err
	// A tray that the click ends may not answer any more.
	if e := (dbus.Error{}); err != nil && (!errors.As(err, &e) || e.Name != "org.freedesktop.DBus.Error.NoReply") {
		t.Fatalf("cannot click %d: %v", id, err)
	}
}

// clickAt clicks what a person would click, once it stands in the menu and can be
// clicked: while an act is under way it can't. The labels are as for find.
func (it *statusItem) clickAt(t testing.TB, labels ...string) {
	t.Helper()
	ready := func(n *node) bool { found := n.find(labels...); return found != nil && found.Enabled }
	var last *node
	if !it.news.await(func() bool { last = it.menu(t); return ready(last) }) {
		t.Fatalf("no entry %q that can be clicked in the menu:\n%s", labels, last.text())
	}
	it.click(t, last.find(labels...).ID)
}

// open tells the tray, as a host does, that the menu is about to be shown.
func (it *statusItem) open(t testing.TB) {
	t.Helper()
	if err := call(t, it.tree, menuName+".AboutToShow", int32(0)).Err; err != nil {
		t.Fatalf("cannot open the menu: %v", err)
	}
	if err := call(t, it.tree, menuName+".Event", int32(0), "opened", dbus.MakeVariant(int32(0)), uint32(0)).Err; err != nil {
		t.Fatalf("cannot open the menu: %v", err)
	}
}

// menu reads the whole menu.
func (it *statusItem) menu(t testing.TB) *node {
	t.Helper()
	it.mu.Lock()
	first := it.firstRead.IsZero()
	if first {
		it.firstRead = time.Now()
	}
	it.mu.Unlock()
	root := it.layout(t)
	// systray's first answer, and the first after ResetMenu, has one level only, for the sake of some hosts.
	if first || root.cut() {
		root = it.layout(t)
	}
	return root
}

func (it *statusItem) layout(t testing.TB) *node {
	t.Helper()
	var revision uint32
	var l layout
	if err := call(t, it.tree, menuName+".GetLayout", int32(0), int32(-1), []string{}).Store(&revision, &l); err != nil {
		t.Fatalf("cannot read the menu: %v", err)
	}
	root, err := l.node()
	if err != nil {
		t.Fatalf("the menu isn't well formed: %v", err)
	}
	return root
}

// waitMenu waits for the menu to be so, reads it anew at each signal, and returns it.
func (it *statusItem) waitMenu(t testing.TB, want func(*node) bool) *node {
	t.Helper()
	var last *node
	if !it.news.await(func() bool { last = it.menu(t); return want(last) }) {
		t.Fatalf("the menu doesn't come to be as it should. It is:\n%s", last.text())
	}
	return last
}

// settled returns after systray has, on its own account and 150 ms after the menu was first read, told hosts
// to read it again. Before that a monitor sees a signal that no change of state caused.
func (it *statusItem) settled(t testing.TB) {
	t.Helper()
	it.menu(t)
	if !it.news.await(func() bool {
		it.mu.Lock()
		defer it.mu.Unlock()
		return it.relaid.Sub(it.firstRead) >= 150*time.Millisecond
	}) {
		t.Fatal("the menu wasn't laid out again after it was first read")
	}
}

// layout is a menu entry on the wire: (ia{sv}av).
type layout struct {
	ID       int32
	Props    map[string]dbus.Variant
	Children []dbus.Variant
}

// node is a menu entry as a host shows it.
type node struct {
	ID               int32
	Label            string // without mnemonics
	Enabled, Visible bool
	Toggle           toggle
	Separator        bool
	Submenu          bool
	Children         []*node
}

// toggle is a check mark's state.
type toggle int

const (
	noToggle toggle = iota
	off
	on
)

// node converts an entry. What has no property has the protocol's default.
func (l layout) node() (*node, error) {
	n := &node{ID: l.ID, Enabled: true, Visible: true}
	var label, kind, toggleType, display string
	var state int32
	for name, into := range map[string]any{"label": &label, "type": &kind, "enabled": &n.Enabled, "visible": &n.Visible,
		"toggle-type": &toggleType, "toggle-state": &state, "children-display": &display} {
		if value, ok := l.Props[name]; ok {
			if err := value.Store(into); err != nil {
				return nil, fmt.Errorf("entry %d: %s is %v: %w", l.ID, name, value, err)
			}
		}
	}
	n.Label, n.Separator, n.Submenu = unmnemonic(label), kind == "separator", display == "submenu"
	if toggleType != "" {
		n.Toggle = off
		if state == 1 {
			n.Toggle = on
		}
	}
	for _, v := range l.Children {
		var child layout
		if err := dbus.Store([]any{v.Value()}, &child); err != nil {
			return nil, fmt.Errorf("a child of entry %d: %w", l.ID, err)
		}
		c, err := child.node()
		if err != nil {
			return nil, err
		}
		n.Children = append(n.Children, c)
	}
	return n, nil
}

// unmnemonic turns "__" into "_", and takes away a single "_", which hosts show as a line under the next letter.
func unmnemonic(label string) string {
	parts := strings.Split(label, "__")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(part, "_", "")
	}
	return strings.Join(parts, "_")
}

// cut tells whether an entry lacks the children that it announces.
func (n *node) cut() bool {
	return n.Submenu && len(n.Children) == 0 || slices.ContainsFunc(n.Children, (*node).cut)
}

// find goes down the labels, and returns nil where there is none. A label is a whole one, or, with "…" at its
// end, the beginning of one. Hidden entries aren't found.
func (n *node) find(labels ...string) *node {
	for _, want := range labels {
		exact := func(c *node) bool { return c.Visible && c.Label == want }
		begins := func(c *node) bool {
			start, short := strings.CutSuffix(want, "…")
			return c.Visible && short && strings.HasPrefix(c.Label, start)
		}
		i := slices.IndexFunc(n.Children, exact)
		if i < 0 {
			i = slices.IndexFunc(n.Children, begins)
		}
		if i < 0 {
			return nil
		}
		n = n.Children[i]
	}
	return n
}

// text draws what is visible: two spaces for each level, "(…)" around what is disabled, "[x]" and "[ ]" for
// check marks, ">" behind a submenu, "---" for a separator.
func (n *node) text() string {
	var b strings.Builder
	n.draw(&b, "")
	return b.String()
}

func (n *node) draw(b *strings.Builder, indent string) {
	for _, c := range n.Children {
		line := c.Label
		switch {
		case !c.Visible:
			continue
		case c.Separator:
			line = "---"
		case !c.Enabled:
			line = "(" + line + ")"
		}
		line = [...]string{noToggle: "", off: "[ ] ", on: "[x] "}[c.Toggle] + line
		if c.Submenu {
			line += " >"
		}
		b.WriteString(indent + line + "\n")
		c.draw(b, indent+"  ")
	}
}
