import { BlockList, isIP, isIPv6 } from "node:net";
import {
  checkNamespace,
  createEnvReader,
  redisProtocols,
  type Env,
  type EnvReader,
} from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import { logLevels, type LogLevel } from "@larkline/process/telemetry";

export interface Passwords {
  operator: string;
  /** Absent: there are operators only. */
  viewer: string | undefined;
}

export interface ConsoleConfig {
  redisUrl: string;
  namespace: string;
  /** A loopback address when there are no passwords. */
  host: string;
  port: number;
  logLevel: LogLevel;
  /** Absent: everyone on this machine is an operator. */
  passwords: Passwords | undefined;
  /** Addresses and networks of the proxies in front: a client's address is what they say it is. */
  proxies: readonly string[];
  /** The bot, whose permission rules are shown beside those of the HTTP API. */
  appId: string | undefined;
  /** Platform of that bot: `feishu`, `lark` or a base URL. */
  domain: string;
  /** Path of larkline.config.ts, which says what may be spent. */
  configFile: string | undefined;
}

/** Shorter passwords can be guessed. */
const shortestPassword = 12;

function readPasswords(reader: EnvReader): Passwords | undefined {
  const operator = reader.secret("CONSOLE_PASSWORD", { minLength: shortestPassword });
  const viewer = reader.secret("CONSOLE_VIEWER_PASSWORD", { minLength: shortestPassword });
  if (operator === undefined) {
    if (viewer !== undefined) {
      reader.problem("CONSOLE_VIEWER_PASSWORD is set, but CONSOLE_PASSWORD is not.");
    }
    return undefined;
  }
  if (operator !== "" && operator === viewer) {
    reader.problem("CONSOLE_VIEWER_PASSWORD must differ from CONSOLE_PASSWORD.");
  }
  return { operator, viewer };
}

function readHost(reader: EnvReader, hasPassword: boolean): string {
  const host = reader.text("HOST") ?? (hasPassword ? "0.0.0.0" : "127.0.0.1");
  if (!hasPassword && !isLoopbackHost(host)) {
    reader.problem(
      `HOST is ${host}, which others can reach: set CONSOLE_PASSWORD, or HOST=127.0.0.1.`,
    );
  }
  return host;
}

function isAddressOrNetwork(text: string): boolean {
  const [address = "", bits, ...rest] = text.split("/");
  const family = isIP(address);
  if (family === 0 || rest.length > 0) return false;
  return (
    bits === undefined ||
    (/^\d{1,3}$/.test(bits) && Number(bits) >= 1 && Number(bits) <= (family === 4 ? 32 : 128))
  );
}

function readProxies(reader: EnvReader): string[] {
  const named = (reader.text("CONSOLE_TRUST_PROXY") ?? "").split(",").map((one) => one.trim());
  const proxies = named.filter((one) => one !== "");
  for (const proxy of proxies) {
    if (!isAddressOrNetwork(proxy)) {
      reader.problem(
        `CONSOLE_TRUST_PROXY must list addresses such as 10.0.0.7 or 10.0.0.0/8, but has "${proxy}".`,
      );
    }
  }
  return proxies;
}

/**
 * Reads the environment; every problem is reported at once, one per line, naming the variable.
 * Without `CONSOLE_PASSWORD` the console listens on loopback only, and needs no sign-in.
 */
export function loadConfig(env: Env): ParseResult<ConsoleConfig> {
  const reader = createEnvReader(env);
  const passwords = readPasswords(reader);
  return reader.finish({
    redisUrl: reader.url("REDIS_URL", {
      default: "redis://127.0.0.1:6379",
      protocols: redisProtocols,
    }),
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    host: readHost(reader, passwords !== undefined),
    port: reader.port("PORT", { default: 8_003 }),
    logLevel: reader.choice("LOG_LEVEL", logLevels, { default: "info" }),
    passwords,
    proxies: readProxies(reader),
    appId: reader.text("FEISHU_APP_ID"),
    domain: reader.text("FEISHU_DOMAIN", { default: "feishu" }),
    configFile: reader.text("LARKLINE_CONFIG"),
  });
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

export function isLoopbackAddress(address: string): boolean {
  const plain = address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
  return isIP(plain) !== 0 && loopback.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
}

/** Whether a name or address can only mean this machine. */
export function isLoopbackHost(host: string): boolean {
  const name = host.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  return name === "localhost" || name.endsWith(".localhost") || isLoopbackAddress(name);
}
