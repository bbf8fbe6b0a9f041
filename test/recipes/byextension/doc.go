// Package byextension is the client's half of the recipes whose other half runs in the
// servers (extensions/*.lua): each operation is one call of etcd's API, made by etcd's
// own client. What is agreed between the halves:
//
// Counter (extensions/counter.lua)
//
//	Range /ctr-increment            answers one key-value, the new value in decimal
//	/ctr                            the counter, in decimal, missing while it is 0
//
// Queue (extensions/queue.lua)
//
//	Put /queue/add ELEMENT          appends ELEMENT: /queue/items/SEQUENCE holds it, with
//	                                a SEQUENCE that sorts in the order of the puts
//	Range /queue/head               removes the oldest element and answers one key-value
//	                                with it, or none if the queue is empty
//
// Barrier (extensions/barrier.lua)
//
//	/barrier/threshold              how many must enter, in decimal; put beforehand
//	Watch /barrier/enter/ID         makes /barrier/here/ID; if so many are here, makes
//	                                /barrier/ready and answers at once, otherwise waits
//	                                for /barrier/ready (block). The first event of the
//	                                watch, a PUT of any key, lets ID through.
//	Delete /barrier/ready, /barrier/here/*   closes the barrier again
//
// Election (extensions/election.lua)
//
//	Watch /election/campaign/ID     ID = NAME-LEASE, LEASE in hexadecimal. Makes
//	                                /election/candidates/ID, tied to the lease (monitor),
//	                                and waits for the key that is watched,
//	                                /election/campaign/ID (block, as line E4 of figure 11).
//	                                If there is no leader, ID leads at once. The first PUT
//	                                event of the watch says that ID leads.
//	Delete /election/candidates/ID  resigns, or gives a candidacy up. In its event (deleted,
//	                                or expired, of /election/candidates/) the extension
//	                                removes /election/campaign/ID and, if ID was the
//	                                leader, lets the candidate with the lowest create
//	                                revision lead.
//	/election/leader                ID of the leader, for readers; missing
//	                                while there is none. "ID leads" is: put
//	                                /election/leader ID and create /election/campaign/ID,
//	                                both tied to its lease.
package byextension
