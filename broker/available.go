package broker

import (
	"context"
	"fmt"
)

// Available tells whether this machine can have a broker of a kind, and what it would take: a program, a folder of jars, a daemon. The error
// says what is missing and is ErrUnavailable, unless looking failed. Nothing is fetched or started.
func Available(ctx context.Context, kind Kind) (what string, err error) {
	switch kind {
	case JVM:
		java, err := checkJava(ctx)
		if err != nil {
			return "", err
		}
		jars, err := cachedJars()
		if err != nil {
			return "", err
		}
		if jars.complete() {
			return fmt.Sprintf("%s, and the jars of Apache Kafka %s in %s", java, kafkaVersion, jars.dir), nil
		}
		mvn, err := findMaven(ctx)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s, and %s to fetch Apache Kafka %s", java, mvn, kafkaVersion), nil
	case Docker:
		daemon := findDaemon(ctx)
		if _, err := daemon.connect(ctx); err != nil {
			return "", err
		}
		return "the daemon at " + daemon.String(), nil
	case Existing:
		return "any cluster that --bootstrap names", nil
	default:
		return "in this program", nil
	}
}
