package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// kafkaSettings are what Apache Kafka is told beside its addresses, whether it runs from its jars or in a container; the rest is its default.
func kafkaSettings(nodes int) map[string]string {
	replicas, inSync := strconv.Itoa(nodes), strconv.Itoa(min(nodes, 2)) // of three, one may be missing
	return map[string]string{
		"process.roles":                                    "broker,controller",
		"controller.listener.names":                        "CONTROLLER",
		"listener.security.protocol.map":                   "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"default.replication.factor":                       replicas,
		"min.insync.replicas":                              inSync,
		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,
		// The first member of a group need not wait 3 s for others.
		"group.initial.rebalance.delay.ms": "0",
		// A mistyped name is an error, as on the other kinds of broker.
		"auto.create.topics.enable": "false",
		// As for the embedded broker: event times of the lab are long past.
		"log.retention.ms": "-1",
	}
}

// nodeSettings are all settings of one node of a cluster on the loopback interface. Its data is in a folder beside the file, named relative to
// it: log.dirs is a list, so that an absolute path must not hold a comma.
func nodeSettings(l jvmLayout, n jvmNode) map[string]string {
	voters := make([]string, len(l.Nodes))
	for i, v := range l.Nodes {
		voters[i] = fmt.Sprintf("%d@%s", v.Number, loopback(v.Controller))
	}
	client := "PLAINTEXT://" + loopback(n.Port)
	s := kafkaSettings(len(l.Nodes))
	s["node.id"] = strconv.Itoa(n.Number)
	s["controller.quorum.voters"] = strings.Join(voters, ",")
	s["listeners"] = client + ",CONTROLLER://" + loopback(n.Controller)
	s["advertised.listeners"] = client
	s["log.dirs"] = dataFolder
	return s
}

// properties writes settings as a file of Java properties. None of the names and values needs escaping.
func properties(settings map[string]string) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%s\n", name, settings[name])
	}
	return []byte(b.String())
}

// containerSettings are the variables that the published image makes the settings of: KAFKA_ and the name in capitals, with _ for each dot.
// The port is the same inside, where the node reaches itself by the address that it gives to others.
func containerSettings(clusterID string, port int) []string {
	controller := 9093
	if port == controller {
		controller++
	}
	s := kafkaSettings(1)
	s["node.id"] = "1"
	s["controller.quorum.voters"] = fmt.Sprintf("1@localhost:%d", controller)
	s["listeners"] = fmt.Sprintf("PLAINTEXT://:%d,CONTROLLER://:%d", port, controller)
	s["advertised.listeners"] = fmt.Sprintf("PLAINTEXT://localhost:%d", port)
	s["log.dirs"] = "/var/lib/kafka/data" // a volume that the image declares, and that goes with the container
	// The image names the id apart from the settings; its default is the same for everybody.
	env := []string{"CLUSTER_ID=" + clusterID, "KAFKA_HEAP_OPTS=" + heap}
	for name, value := range s {
		env = append(env, "KAFKA_"+strings.ToUpper(strings.ReplaceAll(name, ".", "_"))+"="+value)
	}
	slices.SortFunc(env, cmp.Compare[string])
	return env
}
