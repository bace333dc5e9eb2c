package opencode

import "time"

// Marker is the variable in the environment of a server that we started, and of
// everything that it starts, by which what it leaves behind is known to be ours.
const Marker = markerVariable

// Home is the home directory of the server's environment; v2 changes to it.
func (i *Install) Home() string { return environ(i.Env).home() }

// Registered tells whether the incarnation id is registered (v2). A graceful end
// removes the registration, a kill leaves it.
func (i *Install) Registered(id string) bool {
	for _, r := range registrations(i.RegistrationDir()) {
		if r.ID == id {
			return true
		}
	}
	return false
}

// RegisteredAt gives when the incarnation id registered: it has served nobody before.
// The zero time when it isn't registered (any more).
func (i *Install) RegisteredAt(id string) time.Time {
	for _, r := range registrations(i.RegistrationDir()) {
		if r.ID == id {
			return r.Changed
		}
	}
	return time.Time{}
}

// Path is the database's file.
func (d *Database) Path() string { return d.path }

// Generation is that of the program whose database it is.
func (d *Database) Generation() Generation { return d.gen }
