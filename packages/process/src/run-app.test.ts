import { expect, it } from "vitest";
import { accept, openApp, startError, StartError } from "./run-app.ts";

it("an app closes what it has opened once, the last first", async () => {
  const done: string[] = [];
  const app = await openApp(async (opened) => {
    for (const name of ["connections", "server"]) opened.defer(async () => void done.push(name));
    return { port: 1 };
  });
  expect(app.port).toBe(1);
  await Promise.all([app.close(), app.close()]);
  expect(done).toEqual(["server", "connections"]);
});

it("an app that does not start closes what it has opened by then, and says why", async () => {
  const done: string[] = [];
  const starting = openApp(async (opened) => {
    opened.defer(() => void done.push("connections"));
    await Promise.reject(new Error("EADDRINUSE")).catch(
      startError("Cannot listen on 127.0.0.1:80"),
    );
  });
  await expect(starting).rejects.toEqual(
    new StartError("Cannot listen on 127.0.0.1:80: EADDRINUSE"),
  );
  expect(done).toEqual(["connections"]);
});

it("a setting that cannot be used is the reason", () => {
  expect(accept({ ok: true, value: 7 })).toBe(7);
  expect(() => accept({ ok: false, error: "PORT must be a number." })).toThrow(
    new StartError("PORT must be a number."),
  );
});
