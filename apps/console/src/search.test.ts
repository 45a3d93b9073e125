import { expect, it } from "vitest";
import { meantBy, wantedIn } from "./search.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";

it("the form of an id shows its kind", () => {
  expect(wantedIn(` ${traceId} `)).toEqual({ by: "trace", traceId });
  expect(wantedIn(meantBy(`00-${traceId}-b7ad6b7169203331-01`))).toEqual({ by: "trace", traceId });
  expect(wantedIn("om_1")).toEqual({ by: "message", id: "om_1" });
  expect(wantedIn("oc_1")).toEqual({ by: "chat", id: "oc_1" });
  expect(wantedIn("ou_1")).toEqual({ by: "person", id: "ou_1" });
  const here = { session: "cli_1.oc_1", chat: "oc_1" };
  expect(wantedIn("cli_1.oc_1")).toMatchObject({ by: "session", readings: [here] });
  const turn = { session: "cli_1.oc_1.om_9", chat: "oc_1", seq: 12 };
  const both = [{ session: "cli_1.oc_1.om_9-12", chat: "oc_1" }, turn];
  expect(wantedIn("cli_1.oc_1.om_9-12")).toMatchObject({ by: "session", readings: both });
  const readings = [
    { session: "api.s-1", chat: "s-1" },
    { session: "api.s", chat: "s", seq: 1 },
  ];
  expect(wantedIn("api.s-1")).toMatchObject({ by: "session", readings });
  expect(wantedIn("s.my-key")).toEqual({ by: "any", id: "s.my-key" });
  expect(wantedIn("")).toBeUndefined();
  expect(wantedIn("x".repeat(300))).toBeUndefined();
});

it.each([
  ["om_a1B2", "om_a1B2"],
  [`om_${traceId}`, `om_${traceId}`],
  ['  "om_x100" ', "om_x100"],
  ["`cli_1a2b.oc_c0de-12`,", "cli_1a2b.oc_c0de-12"],
  ["cli_1a2b.oc_c0de.om_t1", "cli_1a2b.oc_c0de.om_t1"],
  [`cli_1a2b.oc_c0de~${"0a".repeat(10)}-1`, `cli_1a2b.oc_c0de~${"0a".repeat(10)}-1`],
  ["ou_ann said nothing in oc_team", "ou_ann"],
  [`trace ${traceId.toUpperCase()}`, traceId.toUpperCase()],
  [`00-${traceId}-b7ad6b7169203331-01`, traceId],
  ["m-1 · 1,200 in / 45 out · $0.0010 · trace 4bf92f35", "4bf92f35"],
  ["模型 m-1 · 追踪 4bf92f35", "4bf92f35"],
  [`[trace 4bf92f35](https://console.example.com/why?q=${traceId})`, traceId],
  [`https://console.example.com/why?q=${traceId}&frames=all`, traceId],
  ["https://api.example.com/runs?outcome=failed&q=Ann+Lee#x", "Ann Lee"],
  ["http://127.0.0.1:8003/runs?person=ou_ann&tool=page", "ou_ann"],
  ["https://api.example.com/sessions/cli_1a2b.oc_c0de", "cli_1a2b.oc_c0de"],
  ["https://console/dead-letters/cli_1a2b.oc_c0de/turn%3Acli_1a2b.oc_c0de-1", "cli_1a2b.oc_c0de"],
  ["https://applink.feishu.cn/client/chat/open?openChatId=oc_c0de", "oc_c0de"],
  ['{"level":30,"session":"api.oslo-1","turnId":"api.oslo-1-4"}', "api.oslo-1"],
  ["Ann Lee", "Ann Lee"],
  ["100 %", "100 %"],
  ["api_overloaded", "api_overloaded"],
  ["4bf92f35", "4bf92f35"],
  ["", ""],
])("of %j, %j is meant", (pasted, meant) => {
  expect(meantBy(pasted)).toBe(meant);
});
