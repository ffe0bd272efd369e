// Gpu-memory-hook lets a container with a share of a GPU start once the kubelet plugin holds it to its memory.
//
// The container runtime calls it as a createRuntime hook (OCI runtime specification): the container has its
// control group, and none of its processes runs yet. It decides nothing. It tells the plugin of the container
// over a unix socket and waits for a yes; without one it fails, and with it the container's start. It needs
// nothing of the host: it is linked statically, reads no configuration and opens no library.
//
// As "gpu-memory-hook mps" it asks nobody, and refuses a container in which MPS would hide a GPU.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// The most seconds that --seconds takes; the runtime's own timeout of the hook is longer than what is given.
	mostSeconds = 120
	// How long after its time the program ends itself, whatever it waits for then.
	graceAfterEnd = 500 * time.Millisecond
)

// What the CDI spec of a claim has the runtime call the hook with.
type arguments struct {
	sockets string
	claim   string
	device  string
	allowed time.Duration
}

func main() {
	err := run(os.Args[1:], os.Stdin)
	if err != nil {
		fail(err)
	}
}

// Tell the plugin of the container whose state is at stdin; nil once it may start.
func run(words []string, stdin io.Reader) error {
	if len(words) > 0 && words[0] == mpsCommand {
		return checkMps(stdin)
	}
	given, err := parse(words)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(given.allowed)
	// A read of stdin or of /proc has no deadline of its own.
	time.AfterFunc(given.allowed+graceAfterEnd, func() {
		fail(refusal{"the container runtime or the kernel did not answer in time", "see whether the node is overloaded"})
	})
	container, err := readContainer(stdin)
	if err != nil {
		return err
	}
	line, err := request(given, container)
	if err != nil {
		return err
	}
	return ask(given.sockets, line, deadline)
}

func parse(words []string) (arguments, error) {
	var given arguments
	var seconds int
	flags := flag.NewFlagSet("gpu-memory-hook", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&given.sockets, "sockets", "", "the folder with the plugin's sockets")
	flags.StringVar(&given.claim, "claim", "", "the UID of the claim")
	flags.StringVar(&given.device, "device", "", "the name of the CDI device")
	flags.IntVar(&seconds, "seconds", 0, "how long to wait for the plugin")
	wayOut := "only the CDI specs of gpu.nvidia.com call this program"
	if err := flags.Parse(words); err != nil {
		return given, refusal{fmt.Sprintf("wrong arguments: %v", err), wayOut}
	}
	if flags.NArg() > 0 || given.sockets == "" || given.claim == "" || given.device == "" {
		return given, refusal{"wrong arguments: --sockets, --claim and --device have to be given, and nothing else", wayOut}
	}
	if seconds < 1 || seconds > mostSeconds {
		return given, refusal{fmt.Sprintf("--seconds is %d and has to be 1 to %d", seconds, mostSeconds), wayOut}
	}
	given.allowed = time.Duration(seconds) * time.Second
	return given, nil
}

// Say why the container does not start, in one line that its pod's event shows, and end.
func fail(err error) {
	var told said
	text := err.Error()
	if !errors.As(err, &told) {
		text += " (the kubelet tries again, unless the pod's restartPolicy is Never)"
	}
	fmt.Fprintf(os.Stderr, "gpu.nvidia.com does not let this container start: %s\n", shown(text))
	os.Exit(1)
}
