import { runApp } from "@larkline/process/app";
import { startIngressApp } from "./app.ts";

await runApp(startIngressApp, { watched: "ingress" });
