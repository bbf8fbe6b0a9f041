package bootstrap

import "github.com/stoa-kv/stoa/internal/config"

// SelfOf returns this server and its cluster as in the settings.
func SelfOf(cfg *config.Config) Self {
	founders, cluster := cfg.Founders()
	self := Self{
		Cluster: ID(cluster), Name: cfg.Name, Partitions: cfg.Partitions, Existing: !cfg.NewCluster,
		InitialCluster: cfg.InitialCluster.String(), Token: cfg.InitialClusterToken,
	}
	for _, f := range founders {
		if f.Name == cfg.Name {
			self.Member = ID(f.ID)
		}
		self.Members = append(self.Members, Member{ID: ID(f.ID), Name: f.Name, PeerURLs: f.PeerURLs})
	}
	return self
}
