import { expect, it } from "vitest";
import { openDoors, readTriggerSecrets, resolveConfig, subscriptionsOf } from "./index.ts";

function doorsOf(doors: object) {
  const resolved = resolveConfig({ doors });
  return resolved.ok ? resolved.value.doors : resolved.error;
}

it("all doors are shut unless the configuration opens them", () => {
  const shut = doorsOf({});
  if (typeof shut === "string") expect.fail(shut);
  expect(openDoors(shut)).toEqual([]);
  const open = doorsOf({
    triggers: { "build-done": { chat: "oc_1" } },
    messages: { callers: ["ops"] },
    reactions: { Pin: "Note this." },
    comments: true,
    tasks: true,
    approvals: { leave: { code: "A-1" } },
    personal: { events: ["minutes-ready", "meeting-ended"] },
  });
  if (typeof open === "string") expect.fail(open);
  expect(open.triggers["build-done"]).toMatchObject({ bot: "default", perMinute: 60 });
  expect(open.personal?.perHour).toBe(20);
  expect(doorsOf({ personal: { events: ["birthday"] } })).toContain("doors.personal.events");
  expect(open.messages).toEqual({ callers: ["ops"], perHour: 20, quietHours: true });
  expect(openDoors(open).map(({ name, events }) => [name, events])).toEqual([
    ["triggers", []],
    ["messages", []],
    ["reactions", ["im.message.reaction.created_v1"]],
    ["comments", ["drive.notice.comment_add_v1"]],
    ["tasks", ["task.task.update_user_access_v2"]],
    ["approvals", ["approval_instance", "approval_task"]],
    ["personal", ["minutes.minute.generated_v1", "vc.meeting.participant_meeting_ended_v1"]],
  ]);
});

it("a trigger names a bot and an agent that exist, and has a secret that cannot be guessed", () => {
  const trigger = { chat: "oc_1", bot: "desk", agent: "nurse" };
  expect(doorsOf({ triggers: { a: trigger } })).toBe(
    "doors.triggers.a names the unknown bot 'desk'; doors.triggers.a names the unknown agent 'nurse'",
  );
  expect(doorsOf({ triggers: { a: { chat: "ou_1" } } })).toContain("chat");
  const open = doorsOf({ triggers: { "build-done": { chat: "oc_1" } } });
  if (typeof open === "string") expect.fail(open);
  const secretsIn = (env: Record<string, string>) => readTriggerSecrets(env, open);
  expect(secretsIn({})).toMatchObject({
    error: expect.stringMatching(/TRIGGER_SECRET_BUILD_DONE/),
  });
  expect(secretsIn({ TRIGGER_SECRET_BUILD_DONE: "short" })).toMatchObject({
    error: "TRIGGER_SECRET_BUILD_DONE must have 32 characters or more.",
  });
  const [old, fresh] = ["o".repeat(32), "n".repeat(32)];
  expect(secretsIn({ TRIGGER_SECRET_BUILD_DONE: `${old},${fresh}` })).toEqual({
    ok: true,
    value: new Map([["build-done", [old, fresh]]]),
  });
});

it("an app subscribes itself to its tasks, and once to each form of its bot", () => {
  const form = { code: "A-1" };
  const open = doorsOf({ tasks: true, approvals: { leave: form, again: form } });
  if (typeof open === "string") expect.fail(open);
  expect(subscriptionsOf(open, "default")).toEqual(["tasks", "approval:A-1"]);
  expect(subscriptionsOf(open, "nurse")).toEqual(["tasks"]);
  expect(doorsOf({ approvals: { leave: { ...form, bot: "desk" } } })).toBe(
    "doors.approvals.leave names the unknown bot 'desk'",
  );
});
