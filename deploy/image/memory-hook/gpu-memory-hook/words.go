package main

import (
	"strings"
	"unicode"
)

// An event of Kubernetes has 1024 bytes, of which kubelet, containerd and runc take about 350 for themselves.
const mostShownBytes = 640

// Why this program itself refuses the container, and what a person can do.
type refusal struct {
	what   string
	wayOut string
}

func (err refusal) Error() string { return err.what + ": " + err.wayOut }

// Why the plugin refuses it, in the plugin's own words.
type said struct{ text string }

func (err said) Error() string { return err.text }

// The text as one line that an event, a log and a terminal can take; it may quote what a pod's author wrote.
func shown(text string) string {
	clean := strings.Map(func(letter rune) rune {
		if unicode.IsSpace(letter) {
			return ' '
		}
		if !unicode.IsPrint(letter) || letter == unicode.ReplacementChar {
			return '?'
		}
		return letter
	}, text)
	clean = strings.Join(strings.Fields(clean), " ")
	if len(clean) <= mostShownBytes {
		return clean
	}
	cut := mostShownBytes
	for cut > 0 && clean[cut]&0xc0 == 0x80 { // not within a letter
		cut--
	}
	return clean[:cut] + "…"
}
