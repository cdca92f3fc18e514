//go:build unix

package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/windowed-order-counter/lab/internal/filelock"
)

// ServeNode turns the calling process into a node of Kafka: it takes the node's lock and becomes java, which holds the lock for as long as it
// lives, whatever ends it. So the pid in the lock's file is the node's own. It returns only with an error.
func ServeNode(ctx context.Context, cfg ServeNodeConfig) error {
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return err
	}
	// As in Serve: a workspace that was cleaned meanwhile is not made again.
	folder := f.nodeFolder(cfg.Node)
	if _, err := os.Stat(filepath.Join(folder, settingsFile)); err != nil {
		return fmt.Errorf("no node %d to serve: %w", cfg.Node, err)
	}
	java, err := findJava()
	if err != nil {
		return err
	}
	jars, err := cachedJars()
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	lock, err := acquire(waiting, f.nodeLock(cfg.Node))
	if err != nil {
		return fmt.Errorf("another process serves %s: %w", folder, err)
	}
	// A SIGTERM until here has ended ctx; from here on it ends the process.
	signal.Reset(syscall.SIGTERM)
	if err := ctx.Err(); err != nil {
		return errors.Join(err, lock.Release())
	}
	return becomeNode(lock, java, jars, folder)
}

func becomeNode(lock *filelock.Lock, java string, jars jars, folder string) error {
	if err := lock.KeepAcrossExec(); err != nil {
		return err
	}
	if err := os.Chdir(folder); err != nil {
		return err
	}
	// What is ignored stays so in java, and a JVM leaves a signal alone that it finds ignored. SIGQUIT is its way to show its threads.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	if err := syscall.Exec(java, append([]string{java}, javaArgs(jars, "kafka.Kafka", settingsFile)...), os.Environ()); err != nil {
		return fmt.Errorf("%s: %w", java, err)
	}
	return nil
}
