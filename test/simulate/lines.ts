import {
  createConnection,
  createServer,
  type AddressInfo,
  type Server,
  type Socket,
} from "node:net";
import { connections } from "./connections.ts";
import { bytesOf, commandOf, isMessage, ValueReader, type Command } from "./resp.ts";
import { inOurTime, type RedisClock } from "./redis-time.ts";
import { outside, time, type Owner } from "./time.ts";

/** What travels on lines, and when it may go on: the driver of the simulation decides. */
export interface Traffic {
  /** Something has happened on a line. */
  noteActivity(): void;
  /** Commands that Redis has not answered: waits of the driver's, unlike those for a job that may come. */
  pending: number;
  /** Adds what is to be passed on when the driver says so. */
  hold(held: Held): void;
  /** Adds what Redis has said on a connection, of that number: in real time, so that the order among connections is chance. */
  arrived(arrival: Arrival): void;
  readonly clock: RedisClock;
}

/** What Redis has said on a connection. */
export interface Arrival {
  owner: Owner;
  /** Of its connection, among those of its line. */
  connection: number;
  deliver(): void;
}

/** A piece of traffic that waits for the driver. */
export interface Held {
  owner: Owner;
  /** Of its connection, among those of its line. */
  connection: number;
  /** What it is, for people. */
  what: string;
  kind: "redis" | "request" | "answer";
  /** Passes it on; with `lost` the answer does not arrive, and the connection breaks; with `lateMs` it is late. */
  pass(fault?: { lost?: boolean; lateMs?: number }): void;
  /** Breaks the connection before it is passed on. */
  cut(): void;
  /** Whether its connection has broken meanwhile. */
  isOver(): boolean;
}

/** A line of one process to, or from, a server. Processes have no other connections. */
export interface Line {
  readonly port: number;
  /** Breaks all connections; with `refuse` new ones break at once until {@link open}. */
  cut(refuse?: boolean): void;
  open(): void;
  /** From now on open connections are silent, all of them or the one at that place: see {@link Hanging}. */
  hang(how: Hanging, only?: (count: number) => number): void;
  /** Takes no more connections, and breaks those that do not hang. */
  close(): void;
}

/**
 * How a connection hangs open. `deaf`: what the server answers never arrives. `dead`: neither arrives what the client
 * sends, so the server keeps the connection even when the client has ended.
 */
export type Hanging = "deaf" | "dead";

interface LineOptions {
  owner: () => Owner;
  targetPort: () => number;
  traffic: Traffic;
}

/** A connection of a client through a line. */
interface Connection {
  readonly number: number;
  readonly client: Socket;
  readonly target: Socket;
}

/** How a kind of line treats a connection; gives what makes it hang. */
type Join = (connection: Connection, options: LineOptions) => ((how: Hanging) => void) | undefined;

async function startLine(join: Join, options: LineOptions): Promise<Line> {
  return await outside(async () => {
    const sockets = new Set<Socket>();
    /** Open connections that can hang, by the socket of the client, and those that do, by that of the server. */
    const hangers = new Map<Socket, (how: Hanging) => void>();
    const hanging = new Set<Socket>();
    let isRefusing = false;
    const add = (socket: Socket): Socket => {
      sockets.add(socket.setNoDelay(true));
      socket.on("error", () => undefined);
      socket.on("data", options.traffic.noteActivity);
      socket.on("close", () => {
        sockets.delete(socket);
        hangers.delete(socket);
        options.traffic.noteActivity();
      });
      return socket;
    };
    const server: Server = createServer((client) => {
      options.traffic.noteActivity();
      add(client.pause());
      connections.whenNumbered(client, (number) => {
        if (isRefusing || options.owner().isDead) return client.destroy();
        const target = add(createConnection(options.targetPort(), "127.0.0.1"));
        const hang = join({ number, client: client.resume(), target }, options);
        if (hang === undefined) return;
        hangers.set(client, (how) => {
          hang(how);
          hangers.delete(client);
          if (how === "dead") hanging.add(target);
        });
      });
    });
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo; // it listens on TCP
    const cut = (refuse = false): void => {
      isRefusing = refuse;
      for (const socket of sockets) socket.destroy();
    };
    return {
      port,
      cut,
      open: () => void (isRefusing = false),
      hang: (how, only) => {
        const all = [...hangers.values()];
        for (const hang of only === undefined ? all : all.slice(only(all.length)).slice(0, 1)) {
          hang(how);
        }
      },
      close: () => {
        isRefusing = true;
        for (const socket of sockets) if (!hanging.has(socket)) socket.destroy();
        server.close();
      },
    };
  });
}

/** A line to Redis in the time of the simulation. */
export async function startRedisLine(options: LineOptions): Promise<Line> {
  return await startLine((connection, given) => {
    const conversation = new RedisConversation(connection, given);
    return (how) => conversation.hang(how);
  }, options);
}

interface Expected {
  /** It waits for something to happen, and not for Redis. */
  isWait: boolean;
  fault: { lost?: boolean; lateMs?: number } | undefined;
  /** It is ours. */
  onAnswer?: (value: Buffer) => void;
}

class RedisConversation {
  readonly #number: number;
  readonly #client: Socket;
  readonly #target: Socket;
  readonly #traffic: Traffic;
  readonly #owner: Owner;
  #waiting: Command[] = [];
  #isHeld = false;
  #expected: Expected[] = [];
  #counted = 0;
  #id = "";
  #hanging: Hanging | undefined;
  readonly #give: (bytes: Buffer) => void;
  /** Answers are late until then. */
  #lateUntilMs = 0;

  constructor({ number, client, target }: Connection, { owner, traffic }: LineOptions) {
    this.#number = number;
    this.#client = client;
    this.#target = target;
    this.#traffic = traffic;
    this.#owner = owner();
    this.#give = inTime(
      () => Math.max(this.#lateUntilMs, this.#owner.stoppedUntilMs),
      (bytes) => void (this.#hanging === undefined && client.write(bytes)),
    );
    const commands = new ValueReader();
    const answers = new ValueReader();
    this.#expect({
      isWait: false,
      fault: undefined,
      onAnswer: (id) => void (this.#id = id.toString().slice(1).trim()),
    });
    target.write(bytesOf(["CLIENT", "ID"]));
    client.on("data", (bytes: Buffer) => {
      if (this.#hanging === "dead") return;
      for (const value of commands.push(bytes)) this.#waiting.push(commandOf(value));
      this.#hold();
    });
    target.on("data", (bytes: Buffer) => {
      for (const value of answers.push(bytes)) this.#answer(value);
    });
    client.on("close", () => {
      if (this.#hanging !== "dead") this.#end();
    });
    target.on("close", () => {
      if (this.#hanging === undefined) this.#end();
    });
  }

  hang(how: Hanging): void {
    this.#hanging = how;
    if (how === "dead") this.#waiting = [];
    this.#count();
  }

  #hold(): void {
    if (this.#isHeld || this.#waiting.length === 0) return;
    this.#isHeld = true;
    const names = this.#waiting.map(([name = ""]) => name.toString().toLowerCase());
    this.#traffic.hold({
      owner: this.#owner,
      connection: this.#number,
      what: `Redis ${[...new Set(names)].join(" ")}`,
      kind: "redis",
      pass: (fault) => this.#pass(fault),
      cut: () => void this.#client.destroy(),
      isOver: () => this.#client.destroyed || this.#hanging === "dead",
    });
  }

  #pass(fault?: { lost?: boolean; lateMs?: number }): void {
    this.#isHeld = false;
    const commands = this.#waiting;
    this.#waiting = [];
    for (const command of commands) {
      const wait = waitOf(command);
      this.#expect({ isWait: wait !== undefined, fault });
      if (wait !== undefined) this.#endWait(wait.ms);
      this.#target.write(bytesOf(wait?.command ?? inOurTime(command)));
    }
  }

  #expect(expected: Expected): void {
    this.#expected.push(expected);
    this.#count();
  }

  /** What stands behind a wait waits as well. */
  #count(): void {
    const isWaiting =
      this.#expected[0]?.isWait === true || this.#target.destroyed || this.#hanging === "dead";
    const count = isWaiting ? 0 : this.#expected.length;
    this.#traffic.pending += count - this.#counted;
    this.#counted = count;
  }

  #answer(value: Buffer): void {
    if (isMessage(value)) return this.#arrived(() => this.#give(value));
    const expected = this.#expected.shift();
    this.#count();
    if (expected?.onAnswer !== undefined) return expected.onAnswer(value);
    this.#arrived(() => this.#deliver(value, expected?.fault));
  }

  #arrived(deliver: () => void): void {
    this.#traffic.arrived({ owner: this.#owner, connection: this.#number, deliver });
  }

  #deliver(value: Buffer, fault: Expected["fault"]): void {
    if (fault?.lost === true) return void this.#client.destroy();
    if (fault?.lateMs !== undefined) this.#lateUntilMs = time.now() + fault.lateMs;
    this.#give(value);
  }

  /** Redis would end the wait by the machine's time. */
  #endWait(ms: number): void {
    const { length } = this.#expected;
    const [last] = this.#expected.slice(-1);
    outside(() =>
      time.after(ms, () => {
        const isOpen =
          last !== undefined && this.#expected.includes(last) && !this.#target.destroyed;
        if (!isOpen || length === 0) return;
        this.#traffic.noteActivity();
        void this.#traffic.clock.ask("CLIENT", "UNBLOCK", this.#id, "TIMEOUT");
      }),
    );
  }

  #end(): void {
    this.#client.destroy();
    this.#target.destroy();
    this.#count();
  }
}

/** Calls `give` for each piece in order, none before the time that `untilMs` says. */
function inTime<Piece>(
  untilMs: () => number,
  give: (piece: Piece) => void,
): (piece: Piece) => void {
  const late: Piece[] = [];
  const flush = (): void => {
    while (late.length > 0) {
      const lateMs = untilMs() - time.now();
      if (lateMs > 0) return void outside(() => time.after(lateMs, flush));
      const [piece] = late.splice(0, 1);
      if (piece !== undefined) give(piece);
    }
  };
  return (piece) => {
    late.push(piece);
    if (late.length === 1) flush();
  };
}

/** A command that waits for something to happen, without an end, and how long it was to wait. */
function waitOf(command: Command): { command: (Buffer | string)[]; ms: number } | undefined {
  const [name = Buffer.alloc(0)] = command;
  if (!/^b(?:zpop|lpop|rpop|lmove|rpoplpush)/i.test(name.toString("latin1"))) return undefined;
  const seconds = Number(command.at(-1)?.toString());
  return {
    command: [...command.slice(0, -1), "0"],
    ms: seconds > 0 ? seconds * 1_000 : 86_400_000,
  };
}

/** A line to, or from, a server of HTTP. */
export async function startHttpLine(options: LineOptions & { name: string }): Promise<Line> {
  return await startLine((connection, given) => {
    const conversation = { ...given, ...connection, name: options.name };
    direct(conversation, "request");
    direct(conversation, "answer");
    return undefined;
  }, options);
}

interface HttpConversation extends LineOptions, Connection {
  name: string;
}

/** What travels in one direction of a connection. */
function direct(conversation: HttpConversation, kind: "request" | "answer"): void {
  const { number: connection, client, target, owner, traffic, name } = conversation;
  const [from, to] = kind === "request" ? [client, target] : [target, client];
  const waiting: (Buffer | "end")[] = [];
  let isHeld = false;
  let isEnded = false;
  let lateUntilMs = 0;
  const give = inTime<Buffer | "end">(
    () => Math.max(lateUntilMs, kind === "answer" ? owner().stoppedUntilMs : 0),
    (piece) => void (piece === "end" ? to.end() : to.write(piece)),
  );
  const pass: Held["pass"] = (fault = {}) => {
    isHeld = false;
    if (fault.lost === true && kind === "answer") return void client.destroy();
    if (fault.lost === true) target.once("data", () => void client.destroy());
    lateUntilMs = Math.max(lateUntilMs, time.now() + (fault.lateMs ?? 0));
    for (const piece of waiting.splice(0)) give(piece);
  };
  const hold = (): void => {
    if (isHeld) return;
    isHeld = true;
    const line = waiting[0]?.toString("latin1", 0, 120).split(/\r?\n/)[0] ?? "";
    const what = `${name} ${kind} ${line.slice(0, 80)}`;
    const cut = (): void => void client.destroy();
    traffic.hold({ owner: owner(), connection, what, kind, pass, cut, isOver: () => to.destroyed });
  };
  from.on("data", (bytes: Buffer) => {
    waiting.push(bytes);
    hold();
  });
  from.on("end", () => {
    isEnded = true;
    waiting.push("end");
    hold();
  });
  from.on("close", () => {
    if (!isEnded) to.destroy();
  });
}
