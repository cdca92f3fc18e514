package topology_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/topology"
)

// BenchmarkRestore restores b.N keys from the changelog of the counts, in a process of its own without any local state, from its start until
// it is RUNNING. Run it with -benchtime=1000000x. The broker is embedded in this process and takes its share of the machine, so the rate is
// a lower bound; the memory is that of the instance alone. peak-MiB counts the pages of the mapped state file too, which the system takes back
// when it needs them; anonymous-MiB, at the end of the restore, does not.
func BenchmarkRestore(b *testing.B) {
	l := newLabOn(b, brokertest.Bootstrap(brokertest.Embedded(b)), "", topology.ApplicationID)
	changelog := topology.ApplicationID + "-" + topology.PerStoreChangelog
	l.fillChangelog(changelog, b.N, func(key []byte) int32 { return kafka.PartitionFor(key, topology.RepartitionPartitions) })
	b.ResetTimer()
	start := time.Now()
	i := startInstance(b, strings.Join(l.config.Bootstrap, ","), b.TempDir())
	i.await("state RUNNING", 1)
	took := time.Since(start)
	b.StopTimer()
	b.ReportMetric(anonymousMiB(b, i.cmd.Process.Pid), "anonymous-MiB")
	i.end()
	usage, ok := i.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatal("the system tells nothing of the process")
	}
	b.ReportMetric(float64(b.N)/took.Seconds(), "keys/s")
	b.ReportMetric(float64(usage.Maxrss)/1024, "peak-MiB")
}

// anonymousMiB is the memory of a process that is no file's (proc_pid_status(5)).
func anonymousMiB(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024
		}
	}
	b.Fatal("no RssAnon")
	return 0
}
