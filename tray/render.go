package tray

import (
	"slices"

	"intermission/assets"
)

// surface is a tray that can be drawn on. Elements of a parent stand in the order
// in which they were added; there is no insertion.
type surface interface {
	// begin and end enclose changes of items that belong together.
	begin()
	end()
	setIcon(assets.Icon)
	setTitle(string)
	setTooltip(string)
	// add appends an item below parent, nil for the menu itself. Its title and marks
	// are the item's; what it holds is added by further calls.
	add(parent element, i Item) element
}

// element is one item on a surface.
type element interface {
	setTitle(string)
	setDisabled(bool)
	setChecked(bool)
	setHidden(bool)
	// remove takes the element away, which holds nothing any more.
	remove()
}

// renderer keeps a surface showing a menu, and touches it only where the menu
// has changed. Hosts keep submenus that they have shown, and a click may be on its
// way while the menu changes; so an element is given another title or mark, but
// never another action or session: these get a new element. Since there is no
// insertion, what stands behind a new one is made anew too.
type renderer struct {
	surface surface
	drawn   bool
	menu    Menu // as it was drawn; its Items are below root
	root    drawing
}

// drawing is an item as it was drawn.
type drawing struct {
	item     Item
	element  element
	children []*drawing
}

// draw makes the surface show m.
func (r *renderer) draw(m Menu) {
	r.surface.begin()
	r.sync(&r.root, m.Items)
	r.surface.end()
	if !r.drawn || r.menu.Icon != m.Icon {
		r.surface.setIcon(m.Icon)
	}
	if !r.drawn || r.menu.Title != m.Title {
		r.surface.setTitle(m.Title)
	}
	if !r.drawn || r.menu.Tooltip != m.Tooltip { // last: it says that all is drawn
		r.surface.setTooltip(m.Tooltip)
	}
	r.menu, r.drawn = m, true
}

// forget makes the next draw set icon, title and tooltip again.
func (r *renderer) forget() { r.drawn = false }

func (r *renderer) sync(parent *drawing, want []Item) {
	for i, w := range want {
		// What has gone makes room for what came after it.
		for i < len(parent.children) && !sameItem(parent.children[i].item, w) && !isAmong(parent.children[i].item, want[i:]) {
			r.erase(parent, i)
		}
		if i < len(parent.children) && !sameItem(parent.children[i].item, w) {
			r.eraseFrom(parent, i) // w comes before it
		}
		if i == len(parent.children) {
			parent.children = append(parent.children, &drawing{item: w, element: r.surface.add(parent.element, w)})
		}
		r.update(parent.children[i], w)
	}
	r.eraseFrom(parent, len(want))
}

func isAmong(i Item, list []Item) bool {
	return slices.ContainsFunc(list, func(o Item) bool { return sameItem(i, o) })
}

// sameItem says that an element drawn for a may show b.
func sameItem(a, b Item) bool {
	return a.Key == b.Key && a.Action == b.Action && a.Separator == b.Separator && a.Submenu == b.Submenu && a.Checkable == b.Checkable
}

// update makes a drawing look as w. One that is hidden isn't touched, and holds
// nothing: on Windows any other change would show it again.
func (r *renderer) update(d *drawing, w Item) {
	if w.Hidden {
		r.eraseFrom(d, 0)
		if !d.item.Hidden {
			d.element.setHidden(true)
		}
		d.item.Hidden = true
		return
	}
	if d.item.Title != w.Title {
		d.element.setTitle(w.Title)
	}
	if d.item.Disabled != w.Disabled {
		d.element.setDisabled(w.Disabled)
	}
	if d.item.Checked != w.Checked {
		d.element.setChecked(w.Checked)
	}
	if d.item.Hidden {
		d.element.setHidden(false)
	}
	d.item = w
	r.sync(d, w.Items)
}

// eraseFrom erases the children from the n-th on, the last first.
func (r *renderer) eraseFrom(parent *drawing, n int) {
	for len(parent.children) > n {
		r.erase(parent, len(parent.children)-1)
	}
}

// erase removes the i-th child, and before it what it holds: the children of a removed item
// would turn up elsewhere.
func (r *renderer) erase(parent *drawing, i int) {
	d := parent.children[i]
	r.eraseFrom(d, 0)
	d.element.remove()
	parent.children = slices.Delete(parent.children, i, i+1)
}
