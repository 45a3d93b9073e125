import { expect, test } from "vitest";
import { app, personWorld } from "./person-world.fixture.ts";

const belong = "/open-apis/contact/v3/group/member_belong";

async function groupWorld() {
  const world = await personWorld();
  const ask = async (query: Record<string, string>) =>
    await world.client.call("GET", `${belong}?${new URLSearchParams(query).toString()}`);
  return {
    ...world,
    ask,
    ofAnn: async (more = {}) => await ask({ member_id: world.ann, ...more }),
  };
}

test("a person's user groups come in pages, by any of their ids and by type", async () => {
  const { simulator, ask, ofAnn, ann } = await groupWorld();
  for (const groupId of ["og-1", "og-2", "og-3"]) {
    simulator.addUserGroup({ groupId, members: [ann] });
  }
  simulator.addUserGroup({ groupId: "og-4", dynamic: true, members: [ann] });
  simulator.addUserGroup({ groupId: "og-5", members: [] });
  expect((await ofAnn()).data).toEqual({
    group_list: ["og-1", "og-2", "og-3", "og-4"],
    has_more: false,
  });
  const first = (await ofAnn({ group_type: "1", page_size: "2" })).data;
  expect(first).toMatchObject({ group_list: ["og-1", "og-2"], has_more: true });
  const next = { group_type: "1", page_size: "2", page_token: String(first.page_token) };
  expect((await ofAnn(next)).data).toEqual({ group_list: ["og-3"], has_more: false });
  expect((await ofAnn({ group_type: "2" })).data.group_list).toEqual(["og-4"]);
  const unionId = simulator.users.get(ann)?.unionId ?? "";
  expect(
    (await ask({ member_id: unionId, member_id_type: "union_id" })).data.group_list,
  ).toHaveLength(4);
});

test("questions about user groups are refused with the documented codes", async () => {
  const { simulator, ask, ofAnn } = await groupWorld();
  const refusals = [
    await ask({ member_id: "ou_nobody" }),
    await ofAnn({ member_id_type: "email" }),
    await ofAnn({ group_type: "3" }),
    await ofAnn({ page_size: "1001" }),
    await ofAnn({ page_token: "x" }),
  ];
  expect(refusals.map(({ code }) => code)).toEqual([41073, 41071, 41074, 40011, 40012]);
  simulator.setNameScope(app.appId, "hidden");
  expect(await ofAnn()).toMatchObject({ status: 403, code: 41050 });
  simulator.setConsole(app.appId, { scopes: ["contact:user.base:readonly"] });
  expect(await ofAnn()).toMatchObject({
    code: 99991672,
    body: { msg: expect.stringContaining("contact:group") },
  });
  expect(() => simulator.addUserGroup({ members: ["ou_nobody"] })).toThrow("add the user before");
});

test("sends to a person can be refused a number of times", async () => {
  const { simulator, client, ann } = await groupWorld();
  simulator.refuseSends(ann, 230053, { times: 2 });
  const send = async () => {
    const body = { receive_id: ann, msg_type: "text", content: '{"text":"x"}' };
    return (await client.call("POST", "/open-apis/im/v1/messages?receive_id_type=open_id", body))
      .code;
  };
  expect([await send(), await send(), await send()]).toEqual([230053, 230053, 0]);
});
