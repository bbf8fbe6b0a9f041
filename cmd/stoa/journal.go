package main

import (
	"encoding/binary"
	"fmt"
	"net"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// journalSocket takes datagrams in the journal's native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const journalSocket = "/run/systemd/journal/socket"

// journal writes log lines to systemd with their priority. It is a core and not
// just an output, because an output doesn't learn the level.
type journal struct {
	zapcore.LevelEnabler
	enc  zapcore.Encoder
	conn net.Conn
}

func newJournal(socket string, c zap.Config) (*journal, error) {
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return nil, err
	}
	return &journal{c.Level, encoder(c), conn}, nil
}

func (j *journal) With(fields []zapcore.Field) zapcore.Core {
	enc := j.enc.Clone()
	for _, f := range fields {
		f.AddTo(enc)
	}
	return &journal{j.LevelEnabler, enc, j.conn}
}

func (j *journal) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if j.Enabled(e.Level) {
		return to.AddCore(e, j)
	}
	return to
}

// priorities are syslog's.
var priorities = map[zapcore.Level]int{
	zapcore.DebugLevel: 7, zapcore.InfoLevel: 6, zapcore.WarnLevel: 4, zapcore.ErrorLevel: 3,
}

func (j *journal) Write(e zapcore.Entry, fields []zapcore.Field) error {
	text, err := j.enc.EncodeEntry(e, fields)
	if err != nil {
		return err
	}
	defer text.Free()
	priority, ok := priorities[e.Level]
	if !ok {
		priority = 2 // panics
	}
	b := fmt.Appendf(nil, "PRIORITY=%d\nSYSLOG_IDENTIFIER=stoa\nMESSAGE\n", priority)
	b = binary.LittleEndian.AppendUint64(b, uint64(text.Len()))
	b = append(append(b, text.Bytes()...), '\n')
	_, err = j.conn.Write(b)
	return err
}

func (j *journal) Sync() error { return nil }
