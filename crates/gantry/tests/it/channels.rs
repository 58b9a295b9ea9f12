//! Chat channels in a real gateway: a bridge in Python, signed webhooks, and kills.

mod bridge;
mod webhook;
mod whatsapp;
