package streams

import "fmt"

// instanceID is a thread's own group.instance.id, as Kafka Streams makes it; "" without one.
func (a *App) instanceID(thread int) string {
	if a.cfg.GroupInstanceID == "" {
		return ""
	}
	return fmt.Sprintf("%s-%d", a.cfg.GroupInstanceID, thread)
}

// InstanceIDTakenError says that another process has joined the group under this one's group.instance.id (error 82). The group is that
// one's now, and joining again would only take it back.
type InstanceIDTakenError struct {
	InstanceID string // the thread's
	Err        error
}

func (e *InstanceIDTakenError) Error() string {
	return fmt.Sprintf("another process uses group instance id %s: give each instance a group.instance.id of its own: %v", e.InstanceID, e.Err)
}

func (e *InstanceIDTakenError) Unwrap() error { return e.Err }
