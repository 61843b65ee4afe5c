// Which ports are listened on, by the tables of the kernel.

import { expect, it } from 'vitest';
import { listeningPorts } from './services.ts';

const V4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 1 1 0 100 0 0 10 0
   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 1 1 0 100 0 0 10 0
   2: 0100007F:9C40 0100007F:1538 01 00000000:00000000 00:00000000 00000000   999        0 1 1 0 100 0 0 10 0
   3: 0101087F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 1 1 0 100 0 0 10 0
`;
const V6 = `  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A
   1: 0000000000000000FFFF00000100007F:0017 00000000000000000000000000000000:0000 0A
   2: 00000000000000000000000001000000:0018 00000000000000000000000000000000:0000 0A
`;

it('are those that 127.0.0.1 reaches', () => {
  // Not a connection, not another address of the loopback.
  expect([...listeningPorts(V4)]).toEqual([5432, 8080]);
  // Not what listens at ::1 alone: a name leads to 127.0.0.1.
  expect([...listeningPorts(V6)]).toEqual([22, 23]);
  expect([...listeningPorts(`${V4}${V6}`)]).toEqual([5432, 8080, 22, 23]);
  expect([...listeningPorts('')]).toEqual([]);
});
