package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// FileName is the record's, in the member directory.
const FileName = "bootstrap.json"

// ErrDamaged is inside the error about a record that isn't what was written.
var ErrDamaged = errors.New("the record of this member is damaged")

// checksumLine begins the last field of the file. A record that was changed in any other
// place, the name of a field included, would still be one: of another member, of one that
// never took part, or of peers whose data seems to be another.
const checksumLine = ",\n  \"checksum\": \""

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the file: JSON, with the CRC-32C of all before it as the last field.
func encode(r *Record) ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return seal(bytes.TrimSuffix(b, []byte("\n}"))), nil
}

func seal(body []byte) []byte {
	sum := crc32.Checksum(body, castagnoli)
	return fmt.Appendf(bytes.Clone(body), "%s%08x\"\n}\n", checksumLine, sum)
}

// decode reads what encode wrote, or a release before 0.4, without a checksum: of that no
// field may be unknown, so that damage to the name of one is seen, that of the checksum too.
func decode(b []byte) (*Record, error) {
	r := new(Record)
	d := json.NewDecoder(bytes.NewReader(b))
	if at := bytes.LastIndex(b, []byte(checksumLine)); at < 0 {
		d.DisallowUnknownFields()
	} else if want := seal(b[:at]); !bytes.Equal(b, want) {
		return nil, fmt.Errorf("%w: behind its %d bytes there should be %q, and is %q", ErrDamaged, at, want[at:], b[at:])
	}
	err := d.Decode(r)
	if rest := bytes.TrimSpace(b[d.InputOffset():]); err == nil && len(rest) > 0 {
		err = errors.New("something follows the record")
	}
	if err != nil {
		return nil, fmt.Errorf("%w at offset %d: %w", ErrDamaged, d.InputOffset(), err)
	}
	return r, nil
}

// load returns nil if there is no record.
func load(path string) (*Record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// save replaces the file durably.
func save(path string, r *Record) error {
	b, err := encode(r)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
