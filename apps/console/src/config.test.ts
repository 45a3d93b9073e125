import { expect, it } from "vitest";
import { loadConfig } from "./config.ts";

it("without a password it listens on loopback only", () => {
  expect(loadConfig({})).toEqual({
    ok: true,
    value: {
      redisUrl: "redis://127.0.0.1:6379",
      namespace: "larkline",
      host: "127.0.0.1",
      port: 8003,
      logLevel: "info",
      passwords: undefined,
      proxies: [],
      appId: undefined,
      domain: "feishu",
      configFile: undefined,
    },
  });
});

it.each(["0.0.0.0", "::", "192.0.2.7", "console.example.com", "127.0.0.1.example.com"])(
  "without a password the address %s is refused",
  (host) => {
    expect(loadConfig({ HOST: host })).toEqual({
      ok: false,
      error: `HOST is ${host}, which others can reach: set CONSOLE_PASSWORD, or HOST=127.0.0.1.`,
    });
  },
);

it.each(["127.0.0.1", "127.1.2.3", "::1", "localhost", "console.localhost"])(
  "without a password the address %s is accepted",
  (host) => {
    expect(loadConfig({ HOST: host })).toMatchObject({ ok: true, value: { host } });
  },
);

it("with a password it listens everywhere, unless an address is set", () => {
  const loaded = loadConfig({
    CONSOLE_PASSWORD: "one of the two",
    CONSOLE_VIEWER_PASSWORD: "two of the two",
  });
  expect(loaded).toMatchObject({
    ok: true,
    value: { host: "0.0.0.0", passwords: { operator: "one of the two", viewer: "two of the two" } },
  });
});

it("takes no password that is shorter than twelve characters", () => {
  const loaded = loadConfig({ CONSOLE_PASSWORD: "elevenchars", CONSOLE_VIEWER_PASSWORD: "short" });
  expect(loaded.ok ? "" : loaded.error.split("\n")).toEqual([
    "CONSOLE_PASSWORD must be at least 12 characters long.",
    "CONSOLE_VIEWER_PASSWORD must be at least 12 characters long.",
  ]);
  expect(loadConfig({ CONSOLE_PASSWORD: "twelve chars" }).ok).toBe(true);
});

it("reports every problem at once, without the passwords", () => {
  const same = loadConfig({
    CONSOLE_PASSWORD: "hunter2hunter2",
    CONSOLE_VIEWER_PASSWORD: "hunter2hunter2",
    PORT: "x",
  });
  const alone = loadConfig({ CONSOLE_VIEWER_PASSWORD: "hunter2hunter2" });
  expect(same.ok ? "" : same.error.split("\n")).toEqual([
    "CONSOLE_VIEWER_PASSWORD must differ from CONSOLE_PASSWORD.",
    expect.stringContaining("PORT"),
  ]);
  expect(alone.ok ? "" : alone.error).toBe(
    "CONSOLE_VIEWER_PASSWORD is set, but CONSOLE_PASSWORD is not.",
  );
  expect(JSON.stringify([same, alone])).not.toContain("hunter2hunter2");
});

it("believes proxies that are named by address or network, and no others", () => {
  const proxiesOf = (list: string) => {
    const read = loadConfig({ CONSOLE_PASSWORD: "long enough indeed", CONSOLE_TRUST_PROXY: list });
    return read.ok ? read.value.proxies : read.error;
  };
  expect(proxiesOf("")).toEqual([]);
  expect(proxiesOf(" 10.0.0.7, 10.1.0.0/16,fd00::/8")).toEqual([
    "10.0.0.7",
    "10.1.0.0/16",
    "fd00::/8",
  ]);
  for (const wrong of [
    "true",
    "10.0.0.0/33",
    "0.0.0.0/0",
    "10.0.0.0/8/8",
    "proxy.internal",
    "10.0.0.1/",
  ]) {
    expect(proxiesOf(`10.0.0.7,${wrong}`)).toContain("CONSOLE_TRUST_PROXY must list addresses");
  }
});
