package main

import (
	"crypto/tls"
	"fmt"
)

// peerClientTLS is for connections to other members. etcd looks at the list of revoked
// certificates only when it accepts connections; here a member that is dialled is checked, too.
func (p *ports) peerClientTLS() (*tls.Config, error) {
	conf, err := p.peerTLSInfo.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("peer TLS: %w", err)
	}
	p.peerTLSInfo.ConfigureCRLVerification(conf)
	return conf, nil
}
