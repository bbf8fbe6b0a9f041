package bootstrap

// A server is admitted when one of two things is known (DESIGN.md has the argument):
//
//   - as many other members as make a quorum with it have met it while neither
//     of the two had been admitted, and all of these, each from each other, are
//     in each other's records: a cluster may be bootstrapped with them;
//   - a majority of the other members, all of them admitted, have never met it with
//     another data directory.

// bootstrapPeersNeeded is the number of other members with which a cluster may be
// bootstrapped.
func bootstrapPeersNeeded(members int) int { return members / 2 }

// vouchersNeeded is the number of other members that must vouch.
func vouchersNeeded(members int) int { return (members-1)/2 + 1 }

// canBootstrap reports whether rec has enough members with which a cluster may be
// bootstrapped.
func canBootstrap(rec *Record, members int) bool {
	var able []ID
	for id, p := range rec.Peers {
		if p.Fresh && p.Recorded {
			able = append(able, id)
		}
	}
	return chooses(rec.Peers, nil, able, bootstrapPeersNeeded(members))
}

// chooses reports whether n of the remaining members can be added to the chosen
// ones so that all are in each other's records.
func chooses(peers map[ID]Peer, chosen, left []ID, n int) bool {
	if n == 0 {
		return true
	}
	for i, id := range left {
		if inEachOthersRecords(peers, id, chosen) && chooses(peers, append(chosen[:len(chosen):len(chosen)], id), left[i+1:], n-1) {
			return true
		}
	}
	return false
}

func inEachOthersRecords(peers map[ID]Peer, id ID, others []ID) bool {
	for _, other := range others {
		a, b := peers[id], peers[other]
		if a.Recorders[other] != b.Data || b.Recorders[id] != a.Data {
			return false
		}
	}
	return true
}

func recorders(peers map[ID]Peer) map[ID]ID {
	m := map[ID]ID{}
	for id, p := range peers {
		if p.Recorded {
			m[id] = p.Data
		}
	}
	return m
}
