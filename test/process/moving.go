package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// KeysMoving asks a server of stoa, by its metrics, whether keys are on their way from
// partition to partition.
func (s *Server) KeysMoving(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ClientURL+"/metrics", nil)
	if err != nil {
		return false, fmt.Errorf("asking whether keys move: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, fmt.Errorf("asking whether keys move: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, fmt.Errorf("reading whether keys move: %w", err)
	}
	if !bytes.Contains(text, []byte("\nstoa_keys_moving ")) {
		return false, fmt.Errorf("%s doesn't say whether keys move", s.Name)
	}
	return bytes.Contains(text, []byte("\nstoa_keys_moving 1")), nil
}
