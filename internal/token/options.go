package token

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Errors of --auth-token, in etcd's words.
var (
	errOptions     = errors.New("auth: invalid auth options")
	errMethod      = errors.New("auth: invalid auth signature method")
	errMissingKey  = errors.New("auth: missing key data")
	errKeyMismatch = errors.New("auth: public and private keys don't match")
)

const defaultTTL = 5 * time.Minute

// Kind is the tokens of a server: one of the two is nil.
type Kind struct {
	Simple *Simple
	JWT    *JWT
}

// Parse reads --auth-token: "simple", or "jwt" with options, as
// "jwt,pub-key=app.rsa.pub,priv-key=app.rsa,sign-method=RS512,ttl=10m". The keys are read
// from their files. ttl is that of simple tokens.
func Parse(text string, ttl time.Duration) (Kind, error) {
	name, rest, _ := strings.Cut(text, ",")
	options, err := split(rest)
	if err != nil {
		return Kind{}, fmt.Errorf("--auth-token %q: %w", text, err)
	}
	switch name {
	case "simple":
		if ttl <= 0 {
			ttl = defaultTTL
		}
		return Kind{Simple: NewSimple(ttl)}, nil
	case "jwt":
		j, err := newJWT(options)
		if err != nil {
			return Kind{}, fmt.Errorf("--auth-token %q: %w", text, err)
		}
		return Kind{JWT: j}, nil
	}
	return Kind{}, fmt.Errorf("--auth-token %q: %w: there are simple and jwt", text, errOptions)
}

func split(text string) (map[string]string, error) {
	options := map[string]string{}
	if text == "" {
		return options, nil
	}
	for _, o := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(o, "=")
		if _, twice := options[name]; !ok || twice || strings.Contains(value, "=") {
			return nil, fmt.Errorf("%w: %q", errOptions, o)
		}
		options[name] = value
	}
	return options, nil
}

func newJWT(options map[string]string) (*JWT, error) {
	j := &JWT{ttl: defaultTTL, method: jwt.GetSigningMethod(options["sign-method"])}
	if j.method == nil {
		return nil, fmt.Errorf("%w: sign-method=%q", errMethod, options["sign-method"])
	}
	if ttl := options["ttl"]; ttl != "" {
		var err error
		if j.ttl, err = time.ParseDuration(ttl); err != nil {
			return nil, fmt.Errorf("%w: %w", errOptions, err)
		}
	}
	private, err := read(options["priv-key"])
	if err != nil {
		return nil, err
	}
	public, err := read(options["pub-key"])
	if err != nil {
		return nil, err
	}
	return j, j.setKeys(private, public)
}

func read(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOptions, err)
	}
	return b, nil
}
