package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

const (
	mostAnswerBytes = 64 << 10
	// How long an instance may be silent before another one is asked beside it, as a part of the whole time,
	// and at the most.
	patiencePart = 4
	mostPatience = 3 * time.Second
	// The pauses between two rounds. The folder need not be there yet, so nothing tells of a new socket.
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

var errNoSocket = errors.New("there is no socket")

type answer struct {
	OK      *bool  `json:"ok"`
	Message string `json:"message"`
}

// What one instance said, or why it said nothing.
type outcome struct {
	socket string
	got    answer
	err    error
}

// Ask the plugin until one of its instances answers; nil where the container may start.
//
// During an upgrade there are two, and one of them may be about to end, or hang. So the newest is asked first,
// the next one as soon as it fails, or beside it once it has been silent for a while, and all of them again
// until the time is over. To be asked twice does no harm, since the plugin knows a container by its control
// group.
func ask(folder string, line []byte, deadline time.Time) error {
	allowed := time.Until(deadline)
	over := time.After(allowed)
	answers := make(chan outcome)
	asking, tried := map[string]bool{}, map[string]bool{}
	last := errNoSocket
	for pause := firstPause; ; {
		wait := min(allowed/patiencePart, mostPatience)
		if next := firstOutside(newestFirst(folder), asking, tried); next != "" {
			asking[next], tried[next] = true, true
			go func() {
				got, err := exchange(next, line, deadline)
				answers <- outcome{next, got, err}
			}()
		} else {
			wait, pause = pause, min(2*pause, lastPause)
			clear(tried)
		}
		select {
		case one := <-answers:
			if one.err == nil {
				return one.got.verdict()
			}
			delete(asking, one.socket)
			last = fmt.Errorf("%s: %w", filepath.Base(one.socket), one.err)
		case <-time.After(wait):
		case <-over:
			for socket := range asking {
				last = fmt.Errorf("%s: no answer", filepath.Base(socket))
			}
			return refusal{
				fmt.Sprintf("the kubelet plugin, which would hold it to its share of GPU memory, "+
					"did not answer within %.0f s at %s: %v", allowed.Seconds(), folder, last),
				"look at the gpu.nvidia.com kubelet plugin of this node",
			}
		}
	}
}

func firstOutside(sockets []string, asking, tried map[string]bool) string {
	for _, one := range sockets {
		if !asking[one] && !tried[one] {
			return one
		}
	}
	return ""
}

// The sockets of the folder, that of the instance that began last first.
func newestFirst(folder string) []string {
	type found struct {
		path  string
		since time.Time
	}
	var sockets []found
	entries, _ := os.ReadDir(folder) // a folder that is not there yet has no sockets yet
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".sock") || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if info, err := entry.Info(); err == nil && info.Mode()&os.ModeSocket != 0 {
			sockets = append(sockets, found{filepath.Join(folder, entry.Name()), info.ModTime()})
		}
	}
	sort.SliceStable(sockets, func(i, j int) bool { return sockets[i].since.After(sockets[j].since) })
	paths := make([]string, len(sockets))
	for index, one := range sockets {
		paths[index] = one.path
	}
	return paths
}

// One question and its answer; whatever is no whole answer is an error.
func exchange(socket string, line []byte, until time.Time) (answer, error) {
	var got answer
	connection, err := net.DialTimeout("unix", socket, time.Until(until))
	if err != nil {
		return got, inner(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(until); err != nil {
		return got, err
	}
	if _, err := connection.Write(line); err != nil {
		return got, inner(err)
	}
	text, err := bufio.NewReader(io.LimitReader(connection, mostAnswerBytes)).ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF) && len(text) == 0:
		return got, errors.New("it ended without an answer")
	case errors.Is(err, io.EOF):
		return got, errors.New("its answer was cut")
	case err != nil:
		return got, inner(err)
	}
	if err := json.Unmarshal(text, &got); err != nil || got.OK == nil {
		return got, errors.New("its answer is not understood")
	}
	return got, nil
}

// The error itself, without the path of the socket, which is long and said already.
func inner(err error) error {
	var operation *net.OpError
	if errors.As(err, &operation) {
		err = operation.Err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("no answer")
	}
	return err
}

func (got answer) verdict() error {
	if *got.OK {
		return nil
	}
	if strings.TrimSpace(got.Message) == "" {
		return said{"the kubelet plugin refuses it and does not say why"}
	}
	return said{got.Message}
}
