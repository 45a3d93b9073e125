import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { loadSdk, openClient, tokenHeaders, type HttpInstance } from "./sdk.ts";

const baseUrl = "https://open.feishu.cn";
const payload = {
  path: { chat_id: "oc_1", message_id: "om_1", reaction_id: "r_1", card_id: "c_1", element_id: "e_1", user_id: "ou_1" },
  params: { page_size: 3, receive_id_type: "chat_id" },
  data: { content: "{}", uuid: "u" },
};

interface Sent {
  url?: string;
  method?: string;
  params?: unknown;
  data?: unknown;
  headers?: Record<string, unknown>;
}

/** Notes what is sent, and answers with `{ code: 0 }`. */
function recording(): { sent: Sent[]; http: HttpInstance } {
  const sent: Sent[] = [];
  const request = async ({ url, method, params, data, headers }: Sent): Promise<unknown> => {
    sent.push({ url, method, params, data, headers: { ...headers, "User-Agent": "either's own" } } as Sent);
    return await Promise.resolve({ code: 0 });
  };
  return { sent, http: { request } as unknown as HttpInstance }; // a client calls nothing else
}

type Method = (payload: object, options: object) => Promise<unknown>;

/** The places of all methods of a client. */
function placesOf(tree: object, place = ""): string[] {
  return Object.entries(tree).flatMap(([name, value]: [string, unknown]) =>
    typeof value === "object" && value !== null ? placesOf(value, `${place}${name}.`) : [`${place}${name}`],
  );
}

function methodAt(tree: object, place: string): Method {
  return place.split(".").reduce<unknown>((at, name) => Reflect.get(at as object, name), tree) as Method;
}

const places = placesOf(openClient({ baseUrl, http: recording().http })).filter((place) => place !== "request");

describe("a client", () => {
  it.each(places)("sends what the SDK's client would send: %s", async (place) => {
    const { Client, LoggerLevel, withTenantToken } = loadSdk();
    const [ours, theirs] = [recording(), recording()];
    const options = { appId: "cli_1", appSecret: "s", domain: baseUrl, disableTokenCache: true };
    const sdk = new Client({ ...options, httpInstance: theirs.http, loggerLevel: LoggerLevel.error });
    const own = openClient({ baseUrl, http: ours.http });
    for (const given of [payload, { path: payload.path }]) {
      await methodAt(own, place)(given, { headers: tokenHeaders("t") });
      await methodAt(sdk, place)(given, withTenantToken("t"));
    }
    expect(ours.sent).toEqual(theirs.sent);
  });

  it("is opened without the SDK's script", async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [
      "--input-type=module",
      "--eval",
      `const { openClient } = await import(${JSON.stringify(fileURLToPath(new URL("sdk.ts", import.meta.url)))});
       openClient({ baseUrl: "http://127.0.0.1", http: {} });
       const { default: { _cache } } = await import("node:module");
       console.log(Object.keys(_cache).length);`,
    ]);
    expect(stdout.trim()).toBe("0");
  });
});
