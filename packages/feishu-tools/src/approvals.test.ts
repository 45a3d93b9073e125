import { expect, it } from "vitest";
import { toolWorld } from "./world.fixture.ts";

async function scene() {
  const world = await toolWorld();
  const { platform, ann, bob } = world;
  const approval = platform.work.approvals.addApproval({
    initiator: bob,
    name: "Leave",
    form: [
      { name: "From", value: "2026-12-07" },
      { name: "Days", value: "2" },
    ],
    approvers: [ann],
  });
  const given = {
    instance: approval.instanceCode,
    task: approval.tasks[0]?.taskId,
    form: "From: 2026-12-07\nDays: 2",
    decision: "approve",
  };
  return { ...world, approval, given };
}

it("lists what waits for the person, and what they have started", async () => {
  const { textOf, approval, bob } = await scene();
  const line = `Leave (by Bob; open; instance ${approval.instanceCode}, task ${approval.tasks[0]?.taskId})`;
  expect(await textOf("list_approvals", {})).toContain(line);
  expect(await textOf("list_approvals", { which: "started" }, { person: bob })).toContain(line);
  expect(await textOf("list_approvals", {}, { person: bob })).toBe("There are no such approvals.");
});

it("decides one whose form the person has seen, and none twice", async () => {
  const { textOf, call, approval, given } = await scene();
  expect(await textOf("read_approval", { instance: given.instance })).toContain(given.form);
  const other = await call("decide_approval", { ...given, form: "Days: 1" });
  expect(JSON.stringify(other)).toContain("Nothing was decided: its form says");
  expect(approval.tasks[0]?.status).toBe("PENDING");
  expect(await textOf("decide_approval", { ...given, comment: "Have fun" })).toBe("Approved.");
  expect(approval).toMatchObject({
    tasks: [{ status: "APPROVED" }],
    comments: [{ text: "Have fun" }],
  });
  expect(await textOf("decide_approval", { ...given, decision: "reject" })).toBe(
    "This approval does not wait for the person any more.",
  );
  expect(approval.tasks[0]?.status).toBe("APPROVED");
});

it("lets no person decide for another one", async () => {
  const { call, approval, given, bob } = await scene();
  await call("decide_approval", given, { person: bob });
  expect(approval.tasks[0]?.status).toBe("PENDING");
});
