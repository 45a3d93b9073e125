import { expect, it } from "vitest";
import { inbound, newWorld, servicesOf } from "./turn-world.fixture.ts";
import { messagesToJoin } from "./prepare.ts";

it("a turn is joined by the messages for its own agent, up to the first for another one", async () => {
  const waiting = [{ agent: "ops" }, { agent: "ops" }, {}, { agent: "ops" }].map(
    (fields, index) => ({
      seq: index + 2,
      message: inbound(`om_${index}`, "more", fields),
    }),
  );
  const services = servicesOf(newWorld());
  services.store.waiting = async () => waiting;
  const seqs = async (fields: { agent?: string }) =>
    (await messagesToJoin(services, inbound("om_1", "first", fields))).map(({ seq }) => seq);
  expect(await seqs({ agent: "ops" })).toEqual([2, 3]);
  expect(await seqs({})).toEqual([]);
});
