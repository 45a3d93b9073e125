import {
  attackPrelude,
  bootMs,
  firstOf,
  type AttackCase,
  type AttackEvidence,
  type AttackTarget,
} from "./attack-case.fixture.ts";

function touched(
  target: AttackTarget,
  what: string,
): (evidence: AttackEvidence) => string | undefined {
  return ({ hits }) => (hits[target] > 0 ? `${what} was reached` : undefined);
}

const lingerMs = 100;

function connecting(to: string): string {
  return `${attackPrelude}
    return tries({ connect: () => new Promise((resolve, reject) => {
      const socket = req('net').connect(${to}, () => { socket.end('PING\\r\\n'); resolve('connected') });
      socket.on('error', reject);
    }) })`;
}

/** Attacks on what the network offers, the machine's own services first. */
export const networkAttacks: readonly AttackCase[] = [
  {
    id: "N1",
    threat: "network",
    title: "TCP to a service on loopback, such as Redis",
    programs: [
      {
        runtime: "node",
        code: connecting("{ port: input.tcpPort, host: '127.0.0.1' }"),
        ends: ["ok"],
      },
    ],
    lingerMs,
    gotOut: touched("tcp", "the service"),
  },
  {
    id: "N2",
    threat: "network",
    title: "HTTP to the metadata service of the cloud",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          return tries({ http: () => new Promise((resolve, reject) => {
            const request = req('http').get('http://169.254.169.254/latest/meta-data/', { timeout: 1500 }, (response) => {
              let body = '';
              response.on('data', (chunk) => body += chunk).on('end', () => resolve(body));
            });
            request.on('error', reject).on('timeout', () => request.destroy());
          }) })`,
        ends: ["ok"],
      },
    ],
    lingerMs,
    gotOut: touched("metadata", "the metadata service"),
  },
  {
    id: "N3",
    threat: "network",
    title: "a datagram that carries data out",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const socket = req('dgram').createSocket('udp4');
          return tries({ udp: () => new Promise((resolve, reject) => {
            socket.on('error', reject);
            socket.send('secret', input.udpPort, '127.0.0.1', (error) => { socket.close(); error ? reject(error) : resolve('sent') });
          }) })`,
        ends: ["ok"],
      },
    ],
    lingerMs,
    gotOut: touched("udp", "the datagram's receiver"),
  },
  {
    id: "N4",
    threat: "network",
    title: "a unix socket by its path",
    programs: [{ runtime: "node", code: connecting("input.unixSocket"), ends: ["ok"] }],
    lingerMs,
    gotOut: touched("unix", "the unix socket"),
  },
  {
    id: "N5",
    threat: "network",
    title: "an abstract unix socket",
    programs: [{ runtime: "node", code: connecting("'\\0' + input.abstractSocket"), ends: ["ok"] }],
    lingerMs,
    gotOut: touched("abstract", "the abstract socket"),
  },
  {
    id: "N6",
    threat: "network",
    title: "TCP through subprocesses: bash and Python",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const run = (...command) => req('child_process').execFileSync(...command, { timeout: 30000, stdio: 'pipe' });
          return tries({
            bash: () => run('/bin/bash', ['-c', 'exec 9<>/dev/tcp/127.0.0.1/' + input.tcpPort + '; echo PING >&9']),
            python: () => run('/usr/bin/python3', ['-c', 'import socket; socket.create_connection(("127.0.0.1", ' + input.tcpPort + '), 10)']),
          })`,
        wallMs: 60_000,
        ends: ["ok"],
      },
    ],
    lingerMs,
    gotOut: touched("tcp", "the service"),
  },
  {
    id: "N7",
    threat: "network",
    title: "listening on all addresses",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          return tries({ listen: () => new Promise((resolve, reject) => {
            const server = req('net').createServer((socket) => { socket.on('error', () => {}); socket.end('BACKDOOR') });
            server.on('error', reject);
            server.listen(input.backdoorPort, '0.0.0.0', () => setTimeout(() => { server.close(); resolve('listened') }, 500));
          }) })`,
        ends: ["ok"],
      },
    ],
    gotOut: touched("backdoor", "the program's own listener"),
  },
];

const filesThere = `${attackPrelude} return req('fs').readdirSync('.')`;

/** Attacks on files of others: by writing them, or by what is left to be collected. */
export const writeAttacks: readonly AttackCase[] = [
  {
    id: "W1",
    threat: "writing outside",
    title: "a directory that everybody may write to, and /etc",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs');
          return tries({
            drop: () => { fs.writeFileSync(input.outside + '/drop/owned', 'x'); return 'WROTE drop' },
            etc: () => { fs.closeSync(fs.openSync('/etc/passwd', 'r+')); return 'WROTE etc' },
            usr: () => { fs.closeSync(fs.openSync('/usr/bin/env', 'r+')); return 'WROTE usr' },
          })`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ results }) =>
      /WROTE drop/.test(JSON.stringify(results))
        ? "the directory outside was written to"
        : /WROTE/.test(JSON.stringify(results[0]?.value))
          ? "files of the system are open for writing"
          : undefined,
  },
  {
    id: "W2",
    threat: "writing outside",
    title: "the runner's own code, open for writing",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs');
          return tries({
            source: () => { fs.closeSync(fs.openSync(input.source, 'r+')); return 'OPENED' },
            host: () => { fs.closeSync(fs.openSync(proc.argv[1], 'r+')); return 'OPENED' },
            node: () => { fs.closeSync(fs.openSync(proc.execPath, 'r+')); return 'OPENED' },
          })`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ results }) =>
      JSON.stringify(results).includes("OPENED") ? "code is open for writing" : undefined,
  },
  {
    id: "W3",
    threat: "artifacts",
    title: "symbolic links to a private file and a directory",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs');
          return tries({
            file: () => fs.symlinkSync(input.outside + '/private.txt', 'link.txt'),
            world: () => fs.symlinkSync(input.outside + '/world.txt', 'world.txt'),
            dir: () => fs.symlinkSync(input.outside, 'linked'),
            proc: () => fs.symlinkSync('/proc/self/root' + input.outside, 'rooted'),
          })`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ results, aim }) => {
      const texts = results.flatMap(({ files }) =>
        files.map(({ bytes }) => Buffer.from(bytes).toString("latin1")),
      );
      return texts.some((text) => text.includes(aim.mark))
        ? "what a link leads to was delivered"
        : undefined;
    },
  },
  {
    id: "W4",
    threat: "artifacts",
    title: "a FIFO, a hard link, a directory without rights",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs'), cp = req('child_process');
          return tries({
            fifo: () => cp.execFileSync('/usr/bin/mkfifo', ['pipe.txt']),
            hard: () => fs.linkSync(input.outside + '/world.txt', 'hard.txt'),
            dir: () => { fs.mkdirSync('closed'); fs.writeFileSync('closed/x', 'y'); fs.chmodSync('closed', 0) },
          })`,
        ends: ["ok"],
      },
      { runtime: "node", code: filesThere, ends: ["ok"] },
      { runtime: "node", code: filesThere, ends: ["ok"] },
    ],
    gotOut: ({ results, aim, elapsedMs }) =>
      firstOf(
        elapsedMs > bootMs && "the collection hung",
        results.some(({ files }) =>
          files.some(({ bytes }) => Buffer.from(bytes).includes(`WORLD-${aim.mark}`)),
        ) && "the hard link was delivered",
      ),
  },
];
