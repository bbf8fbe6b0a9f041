package bootstrap

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func fullRecord() *Record {
	return &Record{
		Cluster: 0xc, Member: 1, Data: 0xdada, Starts: 4, Partitions: 2, Admitted: true, Begun: true,
		State: 9, Token: "token", Joined: true, Removed: []ID{4, 5},
		Members: []Member{{ID: 1, Name: "s1", PeerURLs: []string{"http://h1:2380"}}, {ID: 2, Name: "s2", PeerURLs: []string{"http://h2:2380"}}},
		Peers:   map[ID]Peer{2: {Data: 0xdb, Starts: 3, Start: 8, Fresh: true, Recorded: true, Recorders: map[ID]ID{1: 2}}},
	}
}

// Every bit is flipped, the file is cut at every byte, and every byte is left out: it is
// refused, with its name, or says the same.
func TestADamagedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	want := fullRecord()
	require.NoError(t, save(path, want))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := load(path)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.True(t, json.Valid(whole))

	try := func(b []byte) {
		t.Helper()
		_, err := decode(b)
		require.ErrorIs(t, err, ErrDamaged, "%s", b)
	}
	for at := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			try(b)
		}
		try(whole[:at])
		try(append(bytes.Clone(whole[:at]), whole[at+1:]...))
	}
	for _, size := range []int{0, len(whole), 4096} {
		try(make([]byte, size))
	}
	t.Logf("%d bits", 8*len(whole))
	require.NoError(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
	_, err = Open(filepath.Dir(path), nil)
	require.ErrorContains(t, err, path+": the record of this member is damaged")
	_, err = Open(filepath.Dir(path), nil)
	require.ErrorIs(t, err, ErrDamaged, "the directory is not locked")
}

// Releases before 0.4 write no checksum, and pass over one that is there.
func TestARecordOfAnEarlierRelease(t *testing.T) {
	want := fullRecord()
	b, err := json.MarshalIndent(want, "", "  ")
	require.NoError(t, err)
	got, err := decode(append(b, '\n'))
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = decode(bytes.Replace(b, []byte(`"begun"`), []byte(`"begum"`), 1))
	require.ErrorIs(t, err, ErrDamaged)
	_, err = decode(append(b, b...))
	require.ErrorIs(t, err, ErrDamaged)

	b, err = encode(want)
	require.NoError(t, err)
	earlier := new(Record)
	require.NoError(t, json.Unmarshal(b, earlier))
	require.Equal(t, want, earlier)
}
