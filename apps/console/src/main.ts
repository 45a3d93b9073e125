import { runApp } from "@larkline/process/app";
import { startConsoleApp } from "./app.ts";

await runApp(startConsoleApp, { givesWay: true, watched: "console" });
