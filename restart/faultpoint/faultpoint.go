// Package faultpoint names the steps at which a crash, or somebody else's act, is
// tried on purpose. The code calls At at each of them, with one of the names below.
//
// In a program that is built as usual At is empty, and nothing of this package is
// in it. With the build tag faultpoints it tells a controller, which listens on the
// Unix socket that Variable names, who has come to which step, and waits for its word:
// then the process goes on, or it is killed there. The kill matrix
// (supervisor/conformance) is that controller.
package faultpoint

// Name is a step.
type Name string

// A start of the supervisor, and of a server.
const (
	StartInstance   Name = "start/instance-lock" // the instance lock is ours
	StartRecord     Name = "start/record-read"   // what the supervisor before has left is known
	StartGuard      Name = "start/guard-lock"    // the server's lock was granted to who waits for its end
	StartParked     Name = "start/parked"        // nothing stands in the database that a server would resume
	StartIntent     Name = "start/before-spawn"  // the intent to start a server is on record
	StartSpawned    Name = "start/spawned"       // its process is there
	StartRecorded   Name = "start/recorded"      // and on record
	StartRegistered Name = "start/registered"    // it has registered
	StartReady      Name = "start/ready"         // it answers
	StartBegun      Name = "start/begun"         // its page in the ledger is open
	StartSubscribed Name = "start/subscribed"    // its events come
	StartReconciled Name = "start/reconciled"    // the ledger is held against its database
	StartAnnounced  Name = "start/announced"     // everybody is shown that it runs, and what waits
)

// A park.
const (
	ParkSwept    Name = "park/swept"         // what the server would resume is read
	ParkTakenIn  Name = "park/taken-in"      // and in the ledger
	ParkCleared  Name = "park/cleared"       // and out of the database
	ParkReleased Name = "park/lock-released" // others may start a server
	ParkDigested Name = "park/digested"      // suspensions are made of it
	ParkEnded    Name = "park/ended"         // and the rest of the incarnation is decided
)

// The write lock on the server's database: between these two it is ours.
const (
	LockTaken Name = "lock/taken"
	LockLetGo Name = "lock/let-go"
)

// A stop of the server.
const (
	StopAsked     Name = "stop/asked"        // the supervisor has begun
	StopActive    Name = "stop/active-known" // what is at work is known
	StopSuspended Name = "stop/suspended"    // and in the ledger
	StopTold      Name = "stop/server-told"  // the server has answered that it stops, or hasn't
	StopGone      Name = "stop/server-gone"  // its process has ended
	StopParked    Name = "stop/parked"       // and what it left is parked
)

// A consent, from its check to what came of it.
const (
	ConsentChecked   Name = "consent/checked"   // nothing stands against it
	ConsentConsumed  Name = "consent/consumed"  // the suspension is consumed
	ConsentIntent    Name = "consent/intent"    // the intent to deliver is in the ledger
	ConsentSent      Name = "consent/sent"      // it is being sent
	ConsentAnswered  Name = "consent/answered"  // the server has answered, or can't any more
	ConsentDelivered Name = "consent/delivered" // it is on record that the session goes on
	ConsentPutBack   Name = "consent/put-back"  // it waits again
	ConsentUnknown   Name = "consent/unknown"   // and this one, because nobody knows
)

// A no, and an interrupt.
const (
	DismissDone   Name = "dismiss/done"   // it is in the ledger
	InterruptSent Name = "interrupt/sent" // the server has accepted it
)

// A handover to the next supervisor.
const (
	HandoverAccepted Name = "handover/accepted" // no further consent is let in
	HandoverLeaving  Name = "handover/leaving"  // it is decided
	HandoverFound    Name = "handover/found"    // the next one has found the server
	HandoverAdopted  Name = "handover/adopted"  // and adopted it
)

// The dev server.
const (
	ServerLocked     Name = "server/locked"     // it has the lock
	ServerRegistered Name = "server/registered" // it can be found
	ServerReady      Name = "server/ready"      // it answers
	ServerSweeping   Name = "server/sweeping"   // it is about to resume what it has found
	ServerSwept      Name = "server/swept"      // and has
	ServerClaimed    Name = "server/claimed"    // a turn is in flight, by its database
	ServerRequested  Name = "server/requested"  // a request reaches the model
	ServerEnding     Name = "server/ending"     // a turn has come to its end, and its database doesn't say so yet
	ServerStopping   Name = "server/stopping"   // it stops, and nothing is interrupted yet
	ServerStopped    Name = "server/stopped"    // it is no longer registered
)

// All are the names, in the order of above. A name that isn't here is never tried.
var All = []Name{
	StartInstance, StartRecord, StartGuard, StartParked, StartIntent, StartSpawned, StartRecorded,
	StartRegistered, StartReady, StartBegun, StartSubscribed, StartReconciled, StartAnnounced,
	ParkSwept, ParkTakenIn, ParkCleared, ParkReleased, ParkDigested, ParkEnded,
	LockTaken, LockLetGo,
	StopAsked, StopActive, StopSuspended, StopTold, StopGone, StopParked,
	ConsentChecked, ConsentConsumed, ConsentIntent, ConsentSent, ConsentAnswered, ConsentDelivered, ConsentPutBack, ConsentUnknown,
	DismissDone, InterruptSent,
	HandoverAccepted, HandoverLeaving, HandoverFound, HandoverAdopted,
	ServerLocked, ServerRegistered, ServerReady, ServerSweeping, ServerSwept, ServerClaimed, ServerRequested,
	ServerEnding, ServerStopping, ServerStopped,
}
